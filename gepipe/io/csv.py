"""The CSV sink: one row an input, nested results spread over columns."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from gepipe.io.jsonl import damaged, encode_json
from gepipe.io.records import RecordFile, close_all
from gepipe.io.sink import Mark, Record
from gepipe.io.source import PLUGIN_CONFIG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_OWN: Final = ("index", "source", "more")
#: A cell with what ends it. The standard reader has a limit on a cell's length that is global.
_CELL: Final = re.compile(r'(?:"((?:[^"]|"")*)"|([^,"\n]*))(,|\n?\Z)')
_LENGTH: Final = struct.Struct("<I")


@dataclass(frozen=True)
class CsvSink:
    r"""CSV with a header: `index`, `source`, the columns of the first result, `more`.

    Nested results are spread by their path: `top_k.0.label`. The first result that is written
    decides the columns. A later result that lacks one leaves it empty; what it has beyond them
    goes into the column `more` as a JSON object, so nothing is lost and nothing moves. A result
    that is no dict becomes the column `result`; a column that would be called `index`, `source`
    or `more` becomes `result.index` and so on. Booleans are `true` and `false`, missing and
    non-finite numbers are empty. Text is UTF-8; bytes of a file name outside it are written as
    `\udc80` … `\udcff`. Lines end with a newline alone.

    Args:
        path: The file to write. Failed inputs are listed beside it, in `<stem>.failures.jsonl`.
    """

    path: str

    shorthand: ClassVar[str] = "path"
    __pydantic_config__: ClassVar[dict[str, str]] = PLUGIN_CONFIG

    @property
    def encoder(self) -> Callable[[Any], bytes]:
        """Encodes a result as its columns and its cells."""
        return encode_row

    def open(self) -> CsvFile:
        """Open and lock the output."""
        return CsvFile(RecordFile(self.path))


def encode_row(value: Any) -> bytes:
    """Return a result's column names and cells, each as a part of a CSV line.

    Raises:
        ItemError: `not_json`: the result holds something that has no text form.
    """
    plain = json.loads(encode_json(value))
    cells: dict[str, str] = {}
    for path, text in _flattened(plain, "") if isinstance(plain, dict) else (("", _text(plain)),):
        name = path or "result"
        if name in _OWN:
            name = f"result.{name}"
        while name in cells:  # as for {"a": {"b": 1}, "a.b": 2}
            name += "'"
        cells[name] = text
    header = _line(list(cells))
    return _LENGTH.pack(len(header)) + header + _line(list(cells.values()))


def _flattened(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        pairs = iter(value.items())
    elif isinstance(value, list):
        pairs = iter(enumerate(value))
    else:
        yield name, _text(value)
        return
    for key, item in pairs:
        yield from _flattened(item, f"{name}.{key}" if name else str(key))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False)


def _line(cells: Sequence[str]) -> bytes:
    return ",".join(map(_cell, cells)).encode("utf-8", "backslashreplace")


def _cell(text: str) -> str:
    if "\0" in text:  # readers refuse it, and in the file it marks a torn block
        text = text.replace("\0", "\\0")
    if '"' in text or "," in text or "\n" in text or "\r" in text:
        return '"' + text.replace('"', '""') + '"'
    return text


def _cells(line: bytes) -> list[str]:
    text = line.decode("utf-8")
    cells, position = [], 0
    while found := _CELL.match(text, position):
        quoted, plain, end = found.groups()
        cells.append(plain if quoted is None else quoted.replace('""', '"'))
        position = found.end()
        if end != ",":
            break
    return cells


class CsvFile:
    """An open CSV file."""

    def __init__(self, file: RecordFile) -> None:
        self._file = file
        self._columns: bytes | None = None

    def clear(self) -> None:
        """Drop what an earlier run left."""
        self.cut(0)

    def scan(self) -> Iterator[Mark]:
        """Yield the whole rows on disk, without the header."""
        rows = self._rows()
        next(rows, None)
        for row, end in rows:
            digits = row[: row.find(b",")]
            if not digits.isdigit():
                return
            yield Mark(int(digits), end, row)

    def _rows(self) -> Iterator[tuple[bytes, int]]:
        """Yield lines, joined where a newline stands inside quotes."""
        row = b""
        for line, end in self._file.lines():
            row += line
            if row.count(b'"') % 2 == 0:
                yield row, end
                row = b""

    def source_of(self, mark: Mark) -> str:
        """Return the source that a row names, as it stands in the file."""
        try:
            return _cells(mark.raw)[1]
        except (ValueError, IndexError) as error:
            raise damaged(mark, self._file) from error

    def spelled(self, source: str) -> str:
        """Return how the file spells `source`."""
        return _cells(_line([source]))[0] if source else source

    def cut(self, end: int) -> None:
        """Drop everything behind a mark's `end`."""
        self._file.cut(end)
        self._columns = None
        if end:
            header = _cells(next(self._rows())[0])
            self._columns = _line(header[2:-1])

    def write(self, records: Sequence[Record]) -> None:
        """Append rows, in one system call."""
        lines = []
        columns = self._columns
        for index, source, payload in records:
            start = _LENGTH.size + _LENGTH.unpack_from(payload)[0]
            header, row = payload[_LENGTH.size : start], payload[start:]
            if columns is None:
                columns = header
                lines.append(_joined(b"index,source", header, b"more"))
            more = b""
            if header != columns:
                row, more = _rearranged(columns, header, row)
            lines.append(_joined(b"%d,%b" % (index, _line([source])), row, more, gap=columns))
        self._file.append(b"".join(lines))
        self._columns = columns

    def close(self, *, complete: bool) -> None:
        """Bring the file to the disk and unlock it."""
        closers: list[Callable[[], None]] = [self._file.close]
        if complete and not self._file.end:
            closers.insert(0, partial(self._file.append, b"index,source,more\n"))
        close_all(*closers)


def _joined(left: bytes, middle: bytes, right: bytes, gap: bytes | None = None) -> bytes:
    columns = middle if gap is None else gap
    return b"%b,%b,%b\n" % (left, middle, right) if columns else b"%b,%b\n" % (left, right)


def _rearranged(columns: bytes, header: bytes, row: bytes) -> tuple[bytes, bytes]:
    """Put a row of other columns under `columns`; return it and what has no column there."""
    found: Mapping[str, str] = dict(
        zip(_cells(header) if header else (), _cells(row), strict=False)
    )
    names = _cells(columns) if columns else []
    rest = {name: text for name, text in found.items() if name not in set(names)}
    more = json.dumps(rest, ensure_ascii=False) if rest else ""
    return _line([found.get(name, "") for name in names]), _line([more])
