"""The folder of what a sink draws, beside its file of lines."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from gepipe.errors import ConfigError, reason_of

#: What a file name may take of its source's; file systems allow 255 bytes.
_STEM_BYTES: Final = 200


@dataclass(frozen=True)
class DrawnFolder:
    """A folder of pictures, films or the like.

    Attributes:
        path: Where they appear once they are whole.
        parts: Where they are made.
    """

    path: Path
    parts: Path

    @classmethod
    def beside(cls, lines: str, folder: str, kind: str) -> DrawnFolder:
        """Return the folder that belongs to a file of lines.

        Args:
            lines: The file.
            folder: Which folder; empty for the file's path without its ending.
            kind: Ending of the folder where the file has none, such as `pictures`.
        """
        path = Path(lines)
        usual = path.with_name(path.stem if path.suffix else f"{path.name}.{kind}")
        place = Path(folder) if folder else usual
        return cls(place, place / f".{path.stem}.parts")

    def create(self) -> None:
        """Create both, without what a run that was killed has left of parts.

        Raises:
            ConfigError: They cannot be created.
        """
        try:
            shutil.rmtree(self.parts, ignore_errors=True)
            self.parts.mkdir(parents=True)
        except OSError as error:
            raise ConfigError(
                f"cannot create the folder {str(self.parts)!r}: {reason_of(error)}"
            ) from error

    def tidy(self) -> None:
        """Remove the parts, and the folder too if nothing is in it."""
        shutil.rmtree(self.parts, ignore_errors=True)
        with suppress(OSError):  # it holds something
            self.path.rmdir()


def write_part(parts: Path, data: bytes | memoryview) -> bytes:
    """Write a picture into a folder of parts, and return the name that it gets.

    Raises:
        ConfigError: It cannot be written.
    """
    try:
        fd, name = tempfile.mkstemp(dir=parts)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        os.chmod(name, 0o666 & ~_umask())  # noqa: PTH101 - `name` is text
    except OSError as error:  # a full disk, above all: every item would fail alike
        raise ConfigError(
            f"cannot write a picture into {str(parts)!r}: {reason_of(error)}; "
            "run again with --resume"
        ) from error
    return os.path.basename(name).encode()  # noqa: PTH119 - likewise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@lru_cache(maxsize=64)  # all frames of a video name the same
def stem_of(source: str) -> str:
    """Return the part of a source's name that goes into the name of a file: without its ending.

    Of an address without a path, that is the host and the port.
    """
    rest = source.partition("://")[2].rstrip("/")
    if rest and "/" not in rest:
        stem = rest.rpartition("@")[2].replace(":", "-")
    else:
        stem = Path(source).stem
    return os.fsencode(stem)[:_STEM_BYTES].decode("utf-8", "surrogateescape")
