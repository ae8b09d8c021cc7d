"""Inputs that failed: a record for each, and the file that lists them beside the results."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gepipe.errors import ConfigError, reason_of
from gepipe.io.jsonl import quoted, scan_json, source_in
from gepipe.io.records import RecordFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gepipe.io.sink import Mark


@dataclass(frozen=True, slots=True)
class Failure:
    """An input that has no result, and why.

    Attributes:
        index: Position of the input in the job.
        source: The input's display text, see `Entry`.
        stage: Name of the stage that could not process it.
        kind: Machine-readable reason, see `ItemError`.
        error: The reason in words.
    """

    index: int
    source: str
    stage: str
    kind: str
    error: str


def failures_path(output: str | os.PathLike[str]) -> Path:
    """Return where the failures of a run into `output` are listed."""
    return beside(output, ".failures.jsonl")


def beside(output: str | os.PathLike[str], suffix: str) -> Path:
    """Return the path beside `output` that has its stem and another suffix."""
    path = Path(output)
    return path.with_name(path.stem + suffix)


class FailuresFile:
    """`<stem>.failures.jsonl`: one object a line, in input order.

    The file is there after every run, also if nothing failed: results and failures together are
    the inputs, and an absent file could mean a crash as well as no failure.
    """

    def __init__(self, path: Path) -> None:
        self._file = RecordFile(path)

    def clear(self) -> None:
        """Drop what an earlier run left."""
        self._file.cut(0)

    def scan(self) -> Iterator[Mark]:
        """Yield the whole records on disk."""
        return scan_json(self._file)

    def source_of(self, mark: Mark) -> str:
        """Return the source that a record names."""
        return source_in(mark, self._file)

    def cut(self, end: int) -> None:
        """Drop everything behind a mark's `end`."""
        self._file.cut(end)

    def write(self, failures: Sequence[Failure]) -> None:
        """Append failures, in one system call."""
        self._file.append(b"".join([
            b'{"index": %d, "source": %b, "stage": %b, "kind": %b, "error": %b}\n'
            % (
                each.index,
                quoted(each.source),
                quoted(each.stage),
                quoted(each.kind),
                quoted(each.error),
            )
            for each in failures
        ]))  # fmt: skip

    def close(self) -> None:
        """Bring the file to the disk and unlock it. Closing twice is harmless."""
        self._file.close()


def read_failures(path: str | os.PathLike[str]) -> Iterator[Failure]:
    """Yield the failures listed in a finished run's file.

    Raises:
        ConfigError: The file cannot be read, or holds something else.
    """
    shown = repr(os.fspath(path))
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, start=1):
                yield _failure(line, f"{shown}: line {number}")
    except OSError as error:
        raise ConfigError(f"cannot read {shown}: {reason_of(error)}") from error


def _failure(line: bytes, where: str) -> Failure:
    try:
        failure = Failure(**json.loads(line))
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{where}: is no failure: {error}; the file was changed after the run, run without "
            "--resume to start anew"
        ) from error
    return failure
