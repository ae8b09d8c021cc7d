"""Converted models on disk: found again by what they were made of, least recently used go first.

A folder for each model, named by its key: the model, `entry.json`, and what the converter printed.
Folders appear whole or not at all, by a rename. A lock file for each key lets one process convert
while the others wait; a lock ends with its process, so a crash leaves none behind, and what lies
there unfinished without a lock is removed. Processes that run a model leave a mark in its folder,
and what a living process uses is never removed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from gepipe.errors import ConfigError, reason_of
from gepipe.machine import cache_folder
from gepipe.models.digest import file_digest
from gepipe.spec.units import parse_size

#: Environment variable for the largest size of the cache, such as 20GiB.
LIMIT: Final = "GEPIPE_CACHE_LIMIT"
_LIMIT_BYTES: Final = 10 << 30
_FACTS: Final = "entry.json"
_USERS: Final = "users"
_LOGS: Final = "logs"
_PART: Final = ".part-"
_GONE: Final = ".gone-"
_KEY: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Entry:
    """A converted model.

    Attributes:
        key: What it was made of, as a hash.
        path: The model.
        nbytes: What it takes, with what the converter left beside it.
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
                if (born := _born(mark.name)) and mark.read_text() == born:
                    return True
        return False


def default_folder() -> Path:
    """Return where converted models are kept."""
    return cache_folder("models")


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
                (users / str(os.getpid())).write_text(_born("self"))
            return self._entry(self.folder / key)  # it may have been removed in this moment
        return entry

    @contextmanager
    def lock(self, key: str, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
        """Keep every other process from converting the same model.

        Args:
            key: What it is made of, as a hash.
            on_wait: Called if another process converts it right now, before waiting for that.

        Raises:
            ConfigError: The folder cannot be written.
        """
        with self._kept():
            file = self._lock_file(key).open("w")
        with file:
            if not _locked(file):
                if on_wait is not None:
                    on_wait()
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def log_file(self, key: str) -> Path:
        """Return where the converter's output is kept if it fails.

        Raises:
            OSError: Its folder cannot be made.
        """
        folder = self.folder / _LOGS
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{key}.log"

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
            ConfigError: The folder cannot be written, or its disk is full.
        """
        with self._kept():
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in self.folder.glob(
                f"{_PART}{key}-*"
            ):  # of a killed process: the lock is here
                shutil.rmtree(left, ignore_errors=True)
            part = Path(tempfile.mkdtemp(prefix=f"{_PART}{key}-", dir=self.folder))
            try:
                build(part)
                model = part / name
                noted = {**facts, "name": name, "sha256": file_digest(model), **_stamp(model)}
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
        """Remove all models; return those removed, and those left because they are in use.

        Raises:
            ConfigError: The folder cannot be written.
        """
        removed: list[Entry] = []
        left: list[Entry] = []
        for entry in self.entries():
            (left if entry.in_use else removed).append(entry)
        with self._kept():
            for entry in removed:
                self._remove(entry.path.parent)
            self._sweep()
        shutil.rmtree(self.folder / _LOGS, ignore_errors=True)
        return removed, left

    def _shrink(self, keep: str) -> None:
        self._sweep()
        entries = self.entries()
        total = sum(entry.nbytes for entry in entries)
        for entry in reversed(entries):
            if total <= self.limit_bytes:
                break
            if entry.key != keep and not entry.in_use:
                self._remove(entry.path.parent)
                total -= entry.nbytes

    def _sweep(self) -> None:
        """Remove what killed processes left behind, and entries that are damaged."""
        with suppress(OSError):
            for path in self.folder.iterdir():
                unfinished = path.name.startswith(_PART)
                key = path.name.removeprefix(_PART).partition("-")[0]
                if path.name.startswith(_GONE):
                    shutil.rmtree(path, ignore_errors=True)
                elif _KEY.fullmatch(key) and (unfinished or self._entry(path) is None):
                    with self._lock_file(key).open("w") as file:
                        if _locked(file) and (unfinished or self._entry(path) is None):
                            shutil.rmtree(path, ignore_errors=True)

    def _remove(self, folder: Path) -> None:
        """Remove a model; a process that finds it meanwhile finds all of it or nothing."""
        if not folder.exists():
            return
        gone = Path(tempfile.mkdtemp(prefix=_GONE, dir=self.folder))
        with suppress(OSError):
            folder.rename(gone / "old")
        shutil.rmtree(gone, ignore_errors=True)

    def _entry(self, folder: Path) -> Entry | None:
        try:
            facts = json.loads((folder / _FACTS).read_text())
            path = folder / facts["name"]
            stamp = _stamp(path)
            if stamp["nbytes"] != facts["nbytes"]:
                return None
            # Whoever copies a cache may change the time; only then is all of the file read.
            if stamp["mtime_ns"] != facts["mtime_ns"] and file_digest(path) != facts["sha256"]:
                return None
            used = (folder / _FACTS).stat().st_mtime
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return Entry(folder.name, path, _size(folder), used, facts)

    def _lock_file(self, key: str) -> Path:
        folder = self.folder / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{key}.lock"

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Say in words that nothing can be kept."""
        try:
            yield
        except OSError as error:
            advice = "set GEPIPE_CACHE to a folder that can be written"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                advice = "make room (`gepipe model cache clear`), or set GEPIPE_CACHE elsewhere"
            raise ConfigError(
                f"converted models cannot be kept in {self.folder}: {reason_of(error)}; {advice}"
            ) from error


def _born(pid: str) -> str:
    """Return when a process began, as its number may be another's by now; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _locked(file: IO[str]) -> bool:
    """Take the lock of an open file, if nobody has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _stamp(path: Path) -> dict[str, int]:
    stat = path.stat()
    return {"nbytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _size(folder: Path) -> int:
    """Return what a model takes, weights beside it and the converter's log included."""
    own = (path for path in folder.iterdir() if path.name not in (_FACTS, _USERS))
    return sum(
        file.stat().st_size
        for path in own
        for file in (path.rglob("*") if path.is_dir() else (path,))
        if file.is_file()
    )


def _limit() -> int:
    said = os.environ.get(LIMIT)
    if not said:
        return _LIMIT_BYTES
    try:
        return int(parse_size(said))
    except ValueError as error:
        raise ConfigError(f"{LIMIT}={said!r}: {error}") from None
