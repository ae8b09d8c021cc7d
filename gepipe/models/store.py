"""Converted models on disk: found again by what they were made of, least recently used go first.

A folder for each model, named by its key: the model, `entry.json`, and what the converter printed.
Folders appear whole or not at all, by a rename. A lock file for each key lets one process convert
while the others wait; a lock ends with its process, so a crash leaves none behind. Processes that
run a model leave a mark in its folder, and what a living process uses is never removed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gepipe.errors import ConfigError
from gepipe.spec.units import parse_size

#: Environment variable for the largest size of the cache, such as 20GiB.
LIMIT: Final = "GEPIPE_CACHE_LIMIT"
_LIMIT_BYTES: Final = 10 << 30
_FACTS: Final = "entry.json"
_USERS: Final = "users"
_PART: Final = ".part-"
_STALE_S: Final = 24 * 3600.0


@dataclass(frozen=True)
class Entry:
    """A converted model.

    Attributes:
        key: What it was made of, as a hash.
        path: The model.
        nbytes: Its size.
        used: When it was last asked for, in seconds since 1970.
        facts: What it was made of: model, chip, command, …
    """

    key: str
    path: Path
    nbytes: int
    used: float
    facts: Mapping[str, Any]

    @property
    def in_use(self) -> bool:
        """Whether a living process has said that it runs the model."""
        with suppress(OSError):
            for mark in (self.path.parent / _USERS).iterdir():
                if Path(f"/proc/{mark.name}").exists():
                    return True
        return False


def default_folder() -> Path:
    """Return `$GEPIPE_CACHE/models`, else the same under the user's cache folder."""
    if own := os.environ.get("GEPIPE_CACHE"):
        return Path(own) / "models"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gepipe" / "models"


class Store:
    """Converted models on disk.

    Args:
        folder: Where; see `default_folder`.
        limit_bytes: Largest size; by default what `GEPIPE_CACHE_LIMIT` says, else 10 GiB.
    """

    def __init__(self, folder: Path | None = None, limit_bytes: int | None = None) -> None:
        self.folder = default_folder() if folder is None else folder
        self.limit_bytes = _limit() if limit_bytes is None else limit_bytes

    def find(self, key: str, *, mark: bool = False) -> Entry | None:
        """Return a model and note that it was asked for; None if it is not there, or damaged.

        Args:
            key: What it is made of, as a hash.
            mark: Note as well that this process runs it, so that it stays till it ends.
        """
        entry = self._entry(self.folder / key)
        if entry is None:
            return None
        with suppress(OSError):
            os.utime(entry.path.parent / _FACTS)
        if mark:
            with suppress(OSError):
                users = entry.path.parent / _USERS
                users.mkdir(exist_ok=True)
                (users / str(os.getpid())).touch()
            return self._entry(self.folder / key)  # it may have been removed in this moment
        return entry

    @contextmanager
    def lock(self, key: str, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
        """Keep every other process from converting the same model.

        Args:
            key: What it is made of, as a hash.
            on_wait: Called if another process converts it right now, before waiting for that.
        """
        folder = self._made(self.folder / "locks")
        with (folder / f"{key}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if on_wait is not None:
                    on_wait()
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def add(
        self, key: str, name: str, facts: Mapping[str, Any], build: Callable[[Path], None]
    ) -> Entry:
        """Make a model, keep it, and remove old ones if the cache has become too large.

        Args:
            key: What it is made of, as a hash. Its lock must be held.
            name: Name of the model's file.
            facts: What is remembered of it.
            build: Writes the model into the folder that it is given, under that name.

        Raises:
            Exception: What `build` raises; nothing is kept then.
            ConfigError: The folder cannot be written.
        """
        self._made(self.folder)
        part = Path(tempfile.mkdtemp(prefix=_PART, dir=self.folder))
        try:
            build(part)
            noted = {**facts, "name": name, "nbytes": (part / name).stat().st_size}
            (part / _FACTS).write_text(json.dumps(noted, indent=1))
            part.chmod(0o755)
            self._remove(self.folder / key)
            part.rename(self.folder / key)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        entry = self.find(key)
        assert entry is not None
        self._shrink(keep=key)
        return entry

    def entries(self) -> list[Entry]:
        """Return all models, those used last first."""
        try:
            folders = [path for path in self.folder.iterdir() if path.is_dir()]
        except OSError:
            return []
        found = filter(None, map(self._entry, folders))
        return sorted(found, key=lambda entry: entry.used, reverse=True)

    def clear(self) -> tuple[list[Entry], list[Entry]]:
        """Remove all models; return those removed, and those left because they are in use."""
        removed: list[Entry] = []
        left: list[Entry] = []
        for entry in self.entries():
            (left if entry.in_use else removed).append(entry)
        for entry in removed:
            self._remove(entry.path.parent)
        self._sweep(stale_s=_STALE_S)
        return removed, left

    def _shrink(self, keep: str) -> None:
        entries = self.entries()
        total = sum(entry.nbytes for entry in entries)
        for entry in reversed(entries):
            if total <= self.limit_bytes:
                break
            if entry.key != keep and not entry.in_use:
                self._remove(entry.path.parent)
                total -= entry.nbytes
        self._sweep(stale_s=_STALE_S)

    def _sweep(self, stale_s: float) -> None:
        """Remove what processes that were killed left behind."""
        with suppress(OSError):
            for path in self.folder.glob(f"{_PART}*"):
                if time.time() - path.stat().st_mtime > stale_s:
                    shutil.rmtree(path, ignore_errors=True)

    def _remove(self, folder: Path) -> None:
        if not folder.exists():
            return
        gone = Path(tempfile.mkdtemp(prefix=_PART, dir=self.folder))
        with suppress(OSError):
            folder.rename(gone / "old")
        shutil.rmtree(gone, ignore_errors=True)

    def _entry(self, folder: Path) -> Entry | None:
        try:
            facts = json.loads((folder / _FACTS).read_text())
            path = folder / facts["name"]
            nbytes = path.stat().st_size
            if nbytes != facts["nbytes"]:
                return None
            used = (folder / _FACTS).stat().st_mtime
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return Entry(folder.name, path, nbytes, used, facts)

    def _made(self, folder: Path) -> Path:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"converted models cannot be kept in {folder}: {error.strerror}; set GEPIPE_CACHE "
                "to a folder that can be written"
            ) from error
        return folder


def _limit() -> int:
    said = os.environ.get(LIMIT)
    if not said:
        return _LIMIT_BYTES
    try:
        return int(parse_size(said))
    except ValueError as error:
        raise ConfigError(f"{LIMIT}={said!r}: {error}") from None
