"""The Parquet sink: columns for analysis, made from a crash-safe journal when the job is done."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gepipe.errors import ConfigError
from gepipe.io.columns import encode_row, write_parquet
from gepipe.io.journal import JournalFile, journal_path
from gepipe.io.source import PLUGIN_CONFIG

if TYPE_CHECKING:
    from collections.abc import Callable


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
        return (journal_path(self.path),)

    def open(self) -> JournalFile:
        """Open and lock the journal."""
        require_pyarrow()
        return JournalFile(Path(self.path), partial(write_parquet, compression=self.compression))


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
