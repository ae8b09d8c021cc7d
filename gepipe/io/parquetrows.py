"""The source that takes a column of Parquet files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from gepipe.errors import ConfigError
from gepipe.io.parquet import require_pyarrow
from gepipe.io.source import Entry
from gepipe.io.textfiles import (
    MAX_BYTES,
    STDIN,
    TextFiles,
    TextReader,
    no_field,
    text_payload,
    too_large,
)
from gepipe.plugins import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Rows that are read at once.
_ROWS: Final = 4096


@dataclass(frozen=True)
class ParquetRows(TextFiles):
    """The rows of Parquet files, with the text in one of their columns.

    Needs pyarrow: `pip install 'gepipe[parquet]'`. Only that column is read. An input is shown as
    `file.parquet[17]`, with the number of its row, counted from 0. A row without a text is set
    aside, and the others are not affected.

    Args:
        paths: A file, a folder with `.parquet` files, a glob (`**` matches any depth), or a list of
            them.
        field: The column with the text.
        max_bytes: A longer text is set aside as `too_large`.
    """

    field: str = "text"
    max_bytes: int = MAX_BYTES

    endings: ClassVar[tuple[bytes, ...]] = (b".parquet", b".pq")
    content: ClassVar[str] = "Parquet"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_bytes < 1:
            raise ValueError(f"max_bytes is {self.max_bytes}; expected at least 1")
        if STDIN in self.paths:
            raise ValueError(
                "paths is - (standard input); a Parquet file cannot be read from there"
            )

    @property
    def reader(self) -> TextReader:
        """Gives a row's text."""
        return TextReader(self.max_bytes)

    def entries(self) -> Iterator[Entry]:
        """Enumerate the rows.

        Raises:
            ConfigError: pyarrow is missing, a file cannot be read or has no such column of text,
                or there is no row in any.
        """
        require_pyarrow("source")
        empty = True
        for path in self.files():
            name = os.fsdecode(path)
            for number, text in enumerate(self._texts(name)):
                if text is None:
                    payload = no_field(f"column {self.field!r} is null; expected text")
                elif len(text) > self.max_bytes:
                    payload = too_large(len(text), self.max_bytes)
                else:
                    payload = text_payload(text)
                empty = False
                yield Entry(f"{name}[{number}]", payload)
        if empty:
            listed = ", ".join(map(repr, self.paths))
            raise ConfigError(f"{listed}: there is no row; expected one text a row")

    def _texts(self, name: str) -> Iterator[bytes | None]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(name) as file:
                self._check_column(file.schema_arrow, name)
                for batch in file.iter_batches(_ROWS, columns=[self.field]):
                    yield from batch.column(0).cast(pa.large_binary()).to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise ConfigError(f"{name!r}: cannot read this Parquet file: {error}") from error

    def _check_column(self, schema: Any, name: str) -> None:
        import pyarrow.types as kinds

        if self.field not in schema.names:
            raise ConfigError(
                f"{name!r}: there is no column {self.field!r}; "
                f"{did_you_mean(self.field, schema.names)}; set `field:`"
            )
        kind = schema.field(self.field).type
        inner = kind.value_type if kinds.is_dictionary(kind) else kind
        if not (kinds.is_string(inner) or kinds.is_large_string(inner)):
            raise ConfigError(f"{name!r}: column {self.field!r} is {kind}; expected text")
