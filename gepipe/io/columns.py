"""Turns a journal of results into a Parquet file: one column a key, arrays as lists of one type."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gepipe.io.jsonl import encode_json

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from gepipe.io.records import RecordFile

#: A row group ends at this many rows, or bytes of the journal: what is converted at once.
_GROUP_COUNT: Final = 65_536
_GROUP_BYTES: Final = 16 << 20
#: What an array is in the journal: an object of this key, with type, shape and bytes.
_ARRAY: Final = "gepipe.array"

Row = dict[str, Any]


def encode_row(value: Any) -> bytes:
    """Return a result as one line of JSON; arrays of numbers keep their type and their bits.

    Raises:
        ItemError: `not_json`: the result holds something that JSON has no form for.
    """
    if isinstance(value, dict):
        return encode_json({key: _packed(item) for key, item in value.items()})
    return encode_json(_packed(value))


def _packed(value: Any) -> Any:
    dtype = getattr(value, "dtype", None)  # by its shape, so that NumPy need not be imported
    if dtype is None or not getattr(value, "ndim", 0) or dtype.kind not in "iuf" or not value.size:
        return value
    little = value.astype(dtype.newbyteorder("<"), copy=False)
    data = b64encode(little.tobytes()).decode("ascii")
    return {_ARRAY: [dtype.name, list(value.shape), data]}


@dataclass
class _Column:
    """What the rows have under one key.

    Attributes:
        kinds: Types and shapes of arrays.
        count: Rows with an array.
        plain: Whether there is something else, too.
    """

    kinds: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)
    count: int = 0
    plain: bool = False

    @property
    def is_uniform(self) -> bool:
        """Whether all are arrays of one type and shape."""
        return len(self.kinds) == 1 and not self.plain


def write_parquet(journal: RecordFile, path: Path, compression: str) -> None:
    """Write the results in a journal as a Parquet file.

    Args:
        journal: JSON lines of `encode_row`'s results.
        path: The file to write.
        compression: What pyarrow calls it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, _Column] = {}
    plain = pa.schema([])
    count = 0
    for rows in _groups(journal):
        count += len(rows)
        _survey(rows, columns)
        plain = _unified(plain, rows, {name for name, column in columns.items() if column.kinds})
    fixed = {
        # Parquet has no lists of fixed size: where one is absent, readers of Arrow stumble.
        name: _list_type(column, fixed=column.count == count)
        for name, column in columns.items()
        if column.is_uniform
    }
    if any(column.kinds and not column.is_uniform for column in columns.values()):
        for rows in _groups(journal):
            plain = _unified(plain, rows, fixed)
    kinds = {each.name: each.type for each in plain} | fixed
    kinds = {"index": pa.int64(), "source": pa.string()} | {
        name: kinds[name] for name in columns if name not in ("index", "source")
    }
    struct = pa.struct([(name, kind) for name, kind in kinds.items() if name not in fixed])
    with pq.ParquetWriter(path, pa.schema(kinds.items()), compression=compression) as writer:
        for rows in _groups(journal):
            others = pa.array([_without(row, fixed) for row in rows], type=struct)
            made = dict(zip([each.name for each in struct], others.flatten(), strict=True))
            made |= {name: _array_column(rows, name, kinds[name]) for name in fixed}
            writer.write_batch(pa.RecordBatch.from_pydict({name: made[name] for name in kinds}))


def _groups(journal: RecordFile) -> Iterator[list[Row]]:
    rows: list[Row] = []
    start = 0
    for line, end in journal.lines():
        rows.append(_row(json.loads(line)))
        if len(rows) == _GROUP_COUNT or end - start > _GROUP_BYTES:
            yield rows
            rows, start = [], end
    if rows:
        yield rows


def _row(record: Row) -> Row:
    source = record["source"].encode("utf-8", "backslashreplace").decode()
    row: Row = {"index": record["index"], "source": source}
    result = record["result"]
    if not isinstance(result, dict) or _ARRAY in result:
        row["result"] = result
        return row
    for key, value in result.items():
        row[f"result.{key}" if key in ("index", "source") else key] = value
    return row


def _is_array(value: Any) -> bool:
    return isinstance(value, dict) and _ARRAY in value


def _survey(rows: list[Row], columns: dict[str, _Column]) -> None:
    for row in rows:
        for name, value in row.items():
            column = columns.setdefault(name, _Column())
            if _is_array(value):
                dtype, shape, _ = value[_ARRAY]
                column.kinds.add((dtype, tuple(shape)))
                column.count += 1
            elif value is not None:
                column.plain = True


def _unified(schema: Any, rows: list[Row], without: Container[str]) -> Any:
    """Return a schema that holds these rows, too, without some columns."""
    import pyarrow as pa

    found = pa.schema(pa.array([_without(row, without) for row in rows]).type)
    return pa.unify_schemas([schema, found], promote_options="permissive")


def _without(row: Row, without: Container[str]) -> Row:
    """Return a row without some columns, its other arrays as lists."""
    return {
        name: _unpacked(value).tolist() if _is_array(value) else value
        for name, value in row.items()
        if name not in without
    }


def _unpacked(value: Any) -> Any:
    import numpy as np

    dtype, shape, data = value[_ARRAY]
    return np.frombuffer(b64decode(data), np.dtype(dtype).newbyteorder("<")).reshape(shape)


def _list_type(column: _Column, *, fixed: bool) -> Any:
    """Return the type of a column of arrays: lists, one in another for each axis."""
    import numpy as np
    import pyarrow as pa

    ((dtype, shape),) = column.kinds
    kind = pa.from_numpy_dtype(np.dtype(dtype))
    for extent in reversed(shape):
        kind = pa.list_(kind, extent if fixed else -1)
    return kind


def _array_column(rows: list[Row], name: str, kind: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    present = [row[name] for row in rows if row.get(name) is not None]
    absent = np.array([row.get(name) is None for row in rows])
    if not present:
        return pa.nulls(len(rows), kind)
    first = _unpacked(present[0])
    values = np.zeros((len(rows), *first.shape), first.dtype)
    for place, value in zip(np.flatnonzero(~absent), present, strict=True):
        values[place] = _unpacked(value)
    column = pa.array(values.reshape(-1))
    for extent in reversed(first.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, extent)
    mask = pa.array(absent) if absent.any() else None
    return pa.FixedSizeListArray.from_arrays(column, first.shape[0], mask=mask).cast(kind)
