"""Sources whose inputs are lines: plain text, and JSON lines with the text in a field."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gepipe.errors import ConfigError, ItemError
from gepipe.io.source import Entry
from gepipe.io.textfiles import (
    MAX_BYTES,
    TextFiles,
    TextReader,
    checked,
    lines,
    text_payload,
    too_large,
)
from gepipe.plugins import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

_TYPES = {"dict": "an object", "list": "a list", "bool": "true or false", "NoneType": "null"}


@dataclass(frozen=True)
class TextLines(TextFiles):
    r"""The lines of text files, each an input; lines that are empty or blank are skipped.

    Text is UTF-8; a byte order mark and `\r\n` line ends are understood. Other white space belongs
    to a line. An input is shown as `file.txt:17`, with the number of its line. A line that is too
    long or is not UTF-8 is set aside, and the others are not affected.

    Args:
        paths: A file, a folder with `.txt` files, a glob (`**` matches any depth), or a list of
            them; `-` reads standard input.
        max_bytes: A longer line is set aside as `too_large`.
    """

    max_bytes: int = MAX_BYTES

    endings: ClassVar[tuple[bytes, ...]] = (b".txt", b".text")
    content: ClassVar[str] = "text"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_bytes < 1:
            raise ValueError(f"max_bytes is {self.max_bytes}; expected at least 1")

    @property
    def reader(self) -> TextReader:
        """Gives a line's text."""
        return TextReader(self.max_bytes)

    def entries(self) -> Iterator[Entry]:
        """Enumerate the lines.

        Raises:
            ConfigError: A file cannot be read, or there is no line in any.
        """
        empty = True
        for path in self.files():
            name = os.fsdecode(path)
            with self.opened(path) as file:
                for number, line, size in lines(file, self.max_bytes):
                    if size > self.max_bytes:
                        payload = too_large(size, self.max_bytes)
                    elif line and not line.isspace():
                        payload = text_payload(line)
                    else:
                        continue
                    empty = False
                    yield Entry(f"{name}:{number}", payload)
        if empty:
            listed = ", ".join(map(repr, self.paths))
            raise ConfigError(f"{listed}: there are only empty lines; expected one text a line")


@dataclass(frozen=True)
class JsonlRows(TextLines):
    r"""JSON lines: one JSON object a line, with the text in one of its fields.

    Each line that is not empty is an input, shown as `file.jsonl:17`. A line that is no JSON
    object, lacks the field or is too long is set aside, and the others are not affected.

    Args:
        paths: A file, a folder with `.jsonl` files, a glob (`**` matches any depth), or a list of
            them; `-` reads standard input.
        max_bytes: A longer line is set aside as `too_large`.
        field: The field with the text; `a.b` means `b` in the object `a`.
    """

    field: str = "text"

    endings: ClassVar[tuple[bytes, ...]] = (b".jsonl", b".ndjson")
    content: ClassVar[str] = "JSON lines"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.field:
            raise ValueError("field is empty; expected the name of the field with the text")

    @property
    def reader(self) -> JsonlReader:
        """Parses a line and gives its text."""
        return JsonlReader(self.max_bytes, self.field)


@dataclass(frozen=True)
class JsonlReader(TextReader):
    """Parses a line that travels in an input's payload, and gives the text in its field.

    Args:
        max_bytes: Longest line that the source takes.
        field: The field with the text.
    """

    field: str = "text"

    def read(self, payload: bytes) -> bytes:
        """Return the text in UTF-8.

        Raises:
            ItemError: `too_large`, `not_text`, `bad_row` or `no_field`.
        """
        line = super().read(payload)
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ItemError("bad_row", f"the line is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ItemError("bad_row", f"the line is {_named(row)}; expected a JSON object")
        value = self._found(row)
        if not isinstance(value, str):
            raise ItemError("not_text", f"field {self.field!r} is {_named(value)}; expected text")
        return checked(value.encode("utf-8", "surrogatepass"))

    def _found(self, row: dict[str, Any]) -> Any:
        if self.field in row:
            value = row[self.field]
        else:
            value = row
            for name in self.field.split("."):
                if not isinstance(value, dict) or name not in value:
                    known = list(value) if isinstance(value, dict) else []
                    hint = did_you_mean(name, known)
                    raise ItemError("no_field", f"the row has no field {self.field!r}; {hint}")
                value = value[name]
        if value is None:
            raise ItemError("no_field", f"field {self.field!r} is null; expected text")
        return value


def _named(value: Any) -> str:
    return _TYPES.get(type(value).__name__, "text" if isinstance(value, str) else "a number")
