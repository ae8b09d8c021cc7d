"""A folder of files named by their SHA-256, safe against crashes and concurrent writers."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class Store:
    """Keeps bytes under their sum. What is read is checked, so a damaged file only costs a fetch.

    Args:
        folder: Created on first use.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, sha256: str) -> bytes | None:
        """Return the bytes with this sum, or None if they are not (or no longer intact) here."""
        return read_intact(self.folder / sha256, sha256)

    def put(self, sha256: str, data: bytes) -> None:
        """Keep `data`, whose sum has been checked."""
        write_atomically(self.folder / sha256, data)

    @contextmanager
    def locked(self, *, on_wait: Callable[[], None]) -> Iterator[None]:
        """Hold the store for one process, so that two of them do not fetch the same thing.

        The kernel drops the lock with the process, so a killed one leaves nothing to clean up.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def default_folder() -> Path:
    """Return `$GEPIPE_CACHE/samples`, else the same under the user's cache folder."""
    if own := os.environ.get("GEPIPE_CACHE"):
        return Path(own) / "samples"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gepipe" / "samples"


def sha256_of(data: bytes) -> str:
    """Return the SHA-256 of `data` in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def read_intact(path: Path, sha256: str) -> bytes | None:
    """Return the bytes of `path` if it exists and has this sum, else None."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return data if sha256_of(data) == sha256 else None


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that others see either nothing new or all of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".part-", delete=False) as part:
        try:
            part.write(data)
            part.flush()
            Path(part.name).chmod(0o666 & ~_umask())
            Path(part.name).replace(path)
        except BaseException:
            Path(part.name).unlink(missing_ok=True)
            raise


def _umask() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o022
