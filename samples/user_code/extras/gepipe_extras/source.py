"""A source that reads the files in a ZIP archive."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from gepipe import ConfigError, ItemError
from gepipe.io.source import PLUGIN_CONFIG, Entry


@dataclass(frozen=True)
class ZipMembers:
    """The files in a ZIP archive, in the archive's order.

    Attributes:
        path: The archive.
    """

    path: Path

    shorthand: ClassVar[str] = "path"
    finite: ClassVar[bool] = True  # the list has an end, so a run over it can be resumed
    __pydantic_config__: ClassVar[dict[str, str]] = PLUGIN_CONFIG  # unknown keys are errors

    @property
    def reader(self) -> ZipReader:
        """What reads the inputs in the pre workers."""
        return ZipReader(str(self.path))

    def entries(self) -> Iterator[Entry]:
        """List the inputs, in the main process, without reading them."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                names = [each.filename for each in archive.infolist() if not each.is_dir()]
        except (OSError, zipfile.BadZipFile) as error:
            raise ConfigError(f"{self.path}: {error}") from error
        for name in names:
            yield Entry(f"{self.path}/{name}", name.encode())


@dataclass(frozen=True)
class ZipReader:
    """Reads one input in a worker. Travels there by pickle, so it holds no open file."""

    path: str

    def read(self, payload: bytes) -> bytes:
        """Return the content of the member that `payload` names."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                return archive.read(payload.decode())
        except KeyError as error:
            raise ItemError("missing", f"{self.path}: {error.args[0]}") from error
        except (OSError, zipfile.BadZipFile) as error:
            raise ItemError("unreadable", f"{self.path}: {error}") from error
