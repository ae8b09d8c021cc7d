"""Tensors of strings in memory of a fixed size: rows of bytes that tell where each string ends.

    row:  │ extents of the row │ length, bytes │ length, bytes │ … unused │

Numbers have 4 bytes, the lowest first. Strings lie one behind the other, the last axis first, as
Triton writes tensors of BYTES.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from gepipe.errors import ItemError
from gepipe.tensors import TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What ONNX calls the type; NumPy has no name for it, and no engine of a pipeline takes it.
STRING: Final = "string"
#: What a number takes, and with it each string beside its own bytes.
NUMBER_BYTES: Final = 4


def packed(row: TensorSpec, text_bytes: int) -> TensorSpec:
    """Return the row of bytes that stands for a row of strings.

    Args:
        row: A row of any type; what is no row of strings stays as it is.
        text_bytes: The most bytes that its strings may take, `NUMBER_BYTES` for each included.
    """
    if row.dtype != STRING:
        return row
    return TensorSpec(row.name, "uint8", (NUMBER_BYTES * len(row.shape) + text_bytes,))


def pack(where: str, values: NDArray[Any], rows: NDArray[Any]) -> None:
    """Write strings into rows of bytes.

    Args:
        where: The tensor, for messages.
        values: (rows, …) of `str` or `bytes`.
        rows: (rows, bytes) uint8, as `packed` describes them; filled in place.

    Raises:
        ItemError: `too_large`: a row's strings take more bytes than there are.
    """
    import numpy as np

    head = b"".join(_number(extent) for extent in values.shape[1:])
    room = rows.shape[1] - len(head)
    for number, strings in enumerate(values.reshape(len(values), math.prod(values.shape[1:]))):
        parts = [each.encode() if isinstance(each, str) else bytes(each) for each in strings]
        body = b"".join(piece for part in parts for piece in (_number(len(part)), part))
        if len(body) > room:
            raise ItemError(
                "too_large",
                f"{where}: row {number} takes {len(body):,} bytes, {NUMBER_BYTES} for each of "
                f"{len(parts):,} strings included; expected at most {room:,}; set the parameter "
                "text_bytes",
            )
        written = np.frombuffer(head + body, np.uint8)
        rows[number, : len(written)] = written


def unpack(rows: NDArray[Any], rank: int) -> NDArray[Any]:
    """Return strings as `bytes`, (rows, …).

    Args:
        rows: (rows, bytes) uint8, at least one, as `pack` has left them; all of one shape.
        rank: How many axes a row has.
    """
    import numpy as np

    strings: list[bytes] = []
    shape = shape_of(rows[0], rank)
    for row in rows:
        data = row.data
        at = NUMBER_BYTES * rank
        for _ in range(math.prod(shape)):
            first = at + NUMBER_BYTES
            at = first + _read(data, at)
            strings.append(bytes(data[first:at]))
    values = np.empty(len(strings), object)
    values[:] = strings
    return values.reshape(len(rows), *shape)


def shape_of(row: NDArray[Any], rank: int) -> tuple[int, ...]:
    """Return the extents of a row of strings; see `unpack`."""
    data = row.data
    return tuple(_read(data, NUMBER_BYTES * axis) for axis in range(rank))


def _number(value: int) -> bytes:
    return value.to_bytes(NUMBER_BYTES, "little")


def _read(data: memoryview, at: int) -> int:
    return int.from_bytes(data[at : at + NUMBER_BYTES], "little")
