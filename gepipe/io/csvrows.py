"""The source that takes a column of CSV files."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, ClassVar

from gepipe.errors import ConfigError
from gepipe.io.source import Entry
from gepipe.io.textfiles import (
    MAX_BYTES,
    TextFiles,
    TextReader,
    bad_row,
    lines,
    no_field,
    text_payload,
    too_large,
)
from gepipe.plugins import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class CsvRows(TextFiles):
    r"""The rows of CSV files, with the text in one of their columns.

    A cell in double quotes may hold commas, line breaks and doubled quotes. Text is UTF-8; a byte
    order mark and `\r\n` line ends are understood, and empty rows are skipped. An input is shown as
    `file.csv:17`, with the number of the line that its row begins in. A row that lacks the column
    or is too long is set aside, and the others are not affected.

    Args:
        paths: A file, a folder with `.csv` and `.tsv` files, a glob (`**` matches any depth), or a
            list of them; `-` reads standard input.
        field: The column with the text: its name in the first row, or, counted from 0, its number.
        delimiter: What stands between two cells, one character.
        header: Whether the first row of each file names the columns.
        max_bytes: A longer row is set aside as `too_large`; so is a cell of more than 131,072
            characters.
    """

    field: str | int = "text"
    delimiter: str = ","
    header: bool = True
    max_bytes: int = MAX_BYTES

    endings: ClassVar[tuple[bytes, ...]] = (b".csv", b".tsv")
    content: ClassVar[str] = "CSV"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_bytes < 1:
            raise ValueError(f"max_bytes is {self.max_bytes}; expected at least 1")
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n':
            raise ValueError(f"delimiter is {self.delimiter!r}; expected one ASCII character")
        if isinstance(self.field, int):
            if self.field < 0:
                raise ValueError(f"field is {self.field}; columns are counted from 0")
        elif not self.header:
            raise ValueError(
                f"field is {self.field!r}, but header is false, so the columns have no names; "
                "give the column's number, counted from 0"
            )

    @property
    def reader(self) -> TextReader:
        """Gives a cell's text."""
        return TextReader(self.max_bytes)

    def entries(self) -> Iterator[Entry]:
        """Enumerate the rows.

        Raises:
            ConfigError: A file cannot be read or has no such column, or there is no row in any.
        """
        empty = True
        for path in self.files():
            name = os.fsdecode(path)
            with self.opened(path) as file:
                for number, payload in self._rows(file, name):
                    empty = False
                    yield Entry(f"{name}:{number}", payload)
        if empty:
            listed = ", ".join(map(repr, self.paths))
            rows = "no row below the header" if self.header else "no row"
            raise ConfigError(f"{listed}: there is {rows}; expected one text a row")

    def _rows(self, file: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
        """Yield the line that each row begins in, and the payload of its text."""
        feed = _Feed(file, self.max_bytes)
        rows = csv.reader(feed, delimiter=self.delimiter)
        column = self.field if isinstance(self.field, int) else -1
        waiting = self.header
        while True:
            first = feed.number + 1
            feed.size = 0
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                if waiting:
                    raise ConfigError(f"{name!r}: the header cannot be read: {error}") from error
                yield first, self._refused(error)
                continue
            if not row:
                continue
            if waiting:
                waiting, column = False, self._column(row, name)
            elif feed.size > self.max_bytes:
                yield first, too_large(feed.size, self.max_bytes)
            elif column < len(row):
                yield first, text_payload(row[column].encode("latin-1"))
            else:
                yield first, no_field(f"the row has {len(row)} cells; column {column} is wanted")

    def _refused(self, error: csv.Error) -> bytes:
        if "field limit" in str(error):
            return too_large(csv.field_size_limit() + 1, csv.field_size_limit())
        return bad_row(f"the row cannot be read: {error}")

    def _column(self, header: list[str], name: str) -> int:
        if isinstance(self.field, int):
            return self.field
        names = [cell.encode("latin-1").decode("utf-8", "replace").strip() for cell in header]
        if self.field not in names:
            raise ConfigError(
                f"{name!r}: there is no column {self.field!r}; {did_you_mean(self.field, names)}; "
                "set `field:`, and `delimiter:` where it is no comma"
            )
        return names.index(self.field)


class _Feed:
    """Gives the reader of the standard library lines whose characters are the file's bytes.

    Attributes:
        number: Lines given.
        size: Bytes of lines given since it was last set to 0.
    """

    def __init__(self, file: BinaryIO, max_bytes: int) -> None:
        self.number = self.size = 0
        self._lines = lines(file, max_bytes)

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        self.number, line, size = next(self._lines)
        self.size += size
        if size and not line:
            return "-\n"  # not empty, which would be skipped: its size says what it is
        return line.decode("latin-1") + "\n"
