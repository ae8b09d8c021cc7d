"""A sink that writes lines of index, source and result, with tabs between them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gepipe import ItemError
from gepipe.io.records import RecordFile
from gepipe.io.sink import Mark, Record
from gepipe.io.source import PLUGIN_CONFIG


@dataclass(frozen=True)
class TsvSink:
    """One line a result: its index, its source and the result as JSON.

    Attributes:
        path: The file to write.
    """

    path: str

    shorthand: ClassVar[str] = "path"
    __pydantic_config__: ClassVar[dict[str, str]] = PLUGIN_CONFIG

    @property
    def encoder(self) -> Any:
        """What turns a result into bytes, in the post workers."""
        return encode

    def open(self) -> TsvFile:
        """Open and lock the file, in the main process; change nothing in it yet."""
        return TsvFile(RecordFile(self.path))


def encode(result: Any) -> bytes:
    """Return a result as JSON."""
    try:
        return json.dumps(result).encode()
    except (TypeError, ValueError) as error:
        raise ItemError("not_json", str(error)) from error


class TsvFile:
    """The open file. What `scan` finds in it is how a run knows where to go on."""

    def __init__(self, file: RecordFile) -> None:
        self._file = file

    def write(self, records: Sequence[Record]) -> None:
        """Append records: all of them or, if the disk is full, none."""
        lines = [
            b"%d\t%s\t%s\n" % (index, json.dumps(source).encode(), payload)
            for index, source, payload in records
        ]
        self._file.append(b"".join(lines))

    def scan(self) -> Iterator[Mark]:
        """Yield the whole records on disk, each with its index and its end."""
        for line, end in self._file.lines():
            yield Mark(int(line.split(b"\t")[0]), end, line)

    def source_of(self, mark: Mark) -> str:
        """Return the source that a record names."""
        return str(json.loads(mark.raw.split(b"\t")[1]))

    def spelled(self, source: str) -> str:
        """Return how the file spells a source: as it is."""
        return source

    def cut(self, end: int) -> None:
        """Drop what stands behind `end`."""
        self._file.cut(end)

    def clear(self) -> None:
        """Drop everything."""
        self._file.cut(0)

    def close(self, *, complete: bool) -> None:  # noqa: ARG002 - a TSV file has no closing part
        """Bring the file to the disk and unlock it."""
        self._file.close()
