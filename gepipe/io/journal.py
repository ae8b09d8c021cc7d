"""A results file that is made at the end: until then the results lie in a crash-safe journal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from gepipe.errors import ConfigError, GepipeError
from gepipe.io.jsonl import JsonlFile
from gepipe.io.records import RecordFile, close_all
from gepipe.io.sink import Mark, Record

Convert = Callable[[RecordFile, Path], None]


def journal_path(path: str | os.PathLike[str]) -> Path:
    """Return where the journal of an output lies."""
    path = Path(path)
    return path.with_name(path.name + ".journal")


class JournalFile:
    """JSON lines in `<path>.journal` that become the output, whole, when the job is complete.

    Args:
        path: The output.
        convert: Writes the output: it is given the journal, and the file to write to. Whatever it
            raises leaves the journal as it is.

    Raises:
        ConfigError: `path` is a folder, or the journal cannot be written.
    """

    def __init__(self, path: Path, convert: Convert) -> None:
        if path.is_dir():
            raise ConfigError(f"{str(path)!r} is a folder; expected a file to write to")
        self._path = path
        self._convert_into = convert
        self._journal_path = journal_path(path)
        self._records = RecordFile(self._journal_path)
        self._journal = JsonlFile(self._records)

    def clear(self) -> None:
        """Drop what an earlier run left."""
        self._journal.clear()
        self._path.unlink(missing_ok=True)

    def scan(self) -> Iterator[Mark]:
        """Yield the whole records in the journal."""
        return self._journal.scan()

    def source_of(self, mark: Mark) -> str:
        """Return the source that a record names."""
        return self._journal.source_of(mark)

    def spelled(self, source: str) -> str:
        """Return how the journal spells `source`: as it is."""
        return source

    def cut(self, end: int) -> None:
        """Drop everything behind a mark's `end`."""
        self._journal.cut(end)

    def write(self, records: Sequence[Record]) -> None:
        """Append records to the journal, in one system call."""
        self._journal.write(records)

    def close(self, *, complete: bool) -> None:
        """Turn the journal of a complete job into the output; keep that of another."""
        discarded = complete or not self._records.end

        def finish() -> None:
            if complete:
                self._records.require_unchanged()
                self._convert()
            if discarded:
                self._journal_path.unlink(missing_ok=True)

        close_all(finish, partial(self._records.close, discarded=discarded))

    def _convert(self) -> None:
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        try:
            self._convert_into(self._records, temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except GepipeError:
            raise
        except Exception as error:  # a library's errors have many types
            raise GepipeError(
                f"cannot write {str(self._path)!r}: {error}; the results are kept as JSON lines "
                f"in {str(self._journal_path)!r}, and --resume tries again"
            ) from error
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
