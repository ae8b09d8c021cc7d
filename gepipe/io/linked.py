"""JSON lines that each name a picture or film, which holds what several of them tell."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gepipe.errors import ConfigError
from gepipe.io.jsonl import damaged, quoted, scan_json, source_in
from gepipe.io.records import RecordFile
from gepipe.io.sink import Mark, Record


class LinkedLines:
    """An open JSON lines file, and the files that its lines name.

    What sinks that write such files have in common.

    Args:
        records: The file of lines.
        folder: Where the named files lie.
        key: Under which a line names its file.
    """

    def __init__(self, records: RecordFile, folder: Path, key: str) -> None:
        self._records = records
        self._folder = folder
        self._key = key

    def clear(self) -> None:
        """Drop what an earlier run left: the lines, and the files that belong to them."""
        self.cut(0)

    def scan(self) -> Iterator[Mark]:
        """Yield the whole records on disk, up to the first whose file is missing."""
        there: set[str] = set()
        for mark in scan_json(self._records):
            name = self.named(mark)
            if name not in there:
                if not (self._folder / name).is_file():
                    return
                there.add(name)
            yield mark

    def named(self, mark: Mark) -> str:
        """Return the name of the file that a record belongs to.

        Raises:
            ConfigError: It names none: the lines were changed after the run.
        """
        try:
            name = json.loads(mark.raw)[self._key]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise damaged(mark, self._records) from error
        if not isinstance(name, str) or Path(name).name != name:
            raise damaged(mark, self._records)
        return name

    def source_of(self, mark: Mark) -> str:
        """Return the source that a record names."""
        return source_in(mark, self._records)

    def spelled(self, source: str) -> str:
        """Return how the file spells `source`: as it is."""
        return source

    def cut(self, end: int) -> None:
        """Drop everything behind a mark's `end`, and the files that only dropped lines name."""
        kept: set[str] = set()
        dropped: set[str] = set()
        with suppress(ConfigError):  # lines of another sink
            for mark in scan_json(self._records):
                (kept if mark.end <= end else dropped).add(self.named(mark))
        for name in dropped - kept:
            with suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)
        self._records.cut(end)

    def append(self, records: Sequence[Record], names: Mapping[int, str]) -> None:
        """Append records, in one system call.

        Args:
            records: As for a sink.
            names: Index to the name of the file that the record belongs to.
        """
        key = quoted(self._key)
        self._records.append(b"".join([
            b'{"index": %d, "source": %b, %b: %b, "result": %b}\n'
            % (index, quoted(source), key, quoted(names[index]), payload)
            for index, source, payload in records
        ]))  # fmt: skip

    def close_lines(self) -> None:
        """Bring the file of lines to the disk and unlock it."""
        self._records.close()
