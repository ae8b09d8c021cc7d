"""The Parquet sink: columns for analysis, made from a crash-safe journal when the job is done."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gepipe.errors import ConfigError, GepipeError
from gepipe.io.columns import encode_row, write_parquet
from gepipe.io.jsonl import JsonlFile
from gepipe.io.records import RecordFile, close_all
from gepipe.io.source import PLUGIN_CONFIG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gepipe.io.sink import Mark, Record


@dataclass(frozen=True)
class ParquetSink:
    r"""Parquet: columns `index`, `source` and one for each key of the results, nested ones kept.

    Needs pyarrow: `pip install 'gepipe[parquet]'`. While the run goes on, results lie in
    `<path>.journal` as JSON lines; the Parquet file appears whole when the job is complete, and
    the journal goes. A result that is no dict becomes the column `result`; keys `index` and
    `source` become `result.index` and `result.source`. Arrays of one type and shape become lists of
    fixed size that keep the type, such as 384 float32; other arrays become lists. Bytes of a file
    name outside UTF-8 are written as `\udc80` … `\udcff`.

    Args:
        path: The file to write. Failed inputs are listed beside it, in `<stem>.failures.jsonl`.
        compression: `zstd`, `snappy`, `gzip`, `lz4` or `none`.
    """

    path: str
    compression: str = "zstd"

    shorthand: ClassVar[str] = "path"
    __pydantic_config__: ClassVar[dict[str, str]] = PLUGIN_CONFIG

    def __post_init__(self) -> None:
        if self.compression not in (known := ("zstd", "snappy", "gzip", "lz4", "none")):
            raise ValueError(f"compression is {self.compression!r}; expected {', '.join(known)}")

    @property
    def encoder(self) -> Callable[[Any], bytes]:
        """Encodes a result as JSON, for the journal."""
        return encode_row

    @property
    def neighbours(self) -> tuple[Path, ...]:
        """The journal."""
        path = Path(self.path)
        return (path.with_name(path.name + ".journal"),)

    def open(self) -> ParquetFile:
        """Open and lock the journal."""
        require_pyarrow()
        path = Path(self.path)
        if path.is_dir():
            raise ConfigError(f"{self.path!r} is a folder; expected a file to write to")
        return ParquetFile(path, self.compression)


def require_pyarrow(kind: str = "sink") -> None:
    """Check that pyarrow is there and fits NumPy, without paying for its import.

    Args:
        kind: What needs it, a sink or a source.

    Raises:
        ConfigError: It is not, or does not.
    """
    try:
        arrow, numpy = version("pyarrow"), version("numpy")
    except PackageNotFoundError as error:
        raise ConfigError(
            f"{kind} parquet: pyarrow is not installed; run: pip install 'gepipe[parquet]'"
        ) from error
    if _major(arrow) >= 26 and _major(numpy) < 2:
        raise ConfigError(
            f"{kind} parquet: pyarrow {arrow} does not work with NumPy {numpy}; "
            "run: pip install 'pyarrow<26'"
        )


def _major(text: str) -> int:
    digits = text.partition(".")[0]
    return int(digits) if digits.isdigit() else 0


class ParquetFile:
    """A journal of results that becomes a Parquet file."""

    def __init__(self, path: Path, compression: str) -> None:
        self._path = path
        self._compression = compression
        self._journal_path = path.with_name(path.name + ".journal")
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
        """Turn the journal of a complete job into the Parquet file; keep that of another."""
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
            write_parquet(self._records, temporary, self._compression)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except GepipeError:
            raise
        except Exception as error:  # pyarrow's errors have many types
            raise GepipeError(
                f"cannot write {str(self._path)!r}: {error}; the results are kept as JSON lines "
                f"in {str(self._journal_path)!r}, and --resume tries again"
            ) from error
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
