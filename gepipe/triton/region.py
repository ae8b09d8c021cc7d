"""Shared memory through which a server on the same host reads a large tensor."""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHM: Final = Path("/dev/shm")  # noqa: S108 - where shm_open looks
_PREFIX: Final = "gepipe_client_"
#: How often more, and how long apart, the server is asked to forget a region that is in use.
_TRIES: Final = 40
_PAUSE_S: Final = 0.025


class Region:
    """A region that holds one tensor at a time.

    Attributes:
        name: What it is registered under.
        key: Its name for `shm_open`.
        nbytes: Its size.
    """

    def __init__(self, nbytes: int) -> None:
        remove_leftovers()
        self.name = f"{_PREFIX}{os.getpid()}_{secrets.token_hex(4)}"
        self.key = f"/{self.name}"
        self.nbytes = nbytes
        self._path = _SHM / self.name
        self._fd = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)  # for as long as this process lives
            os.posix_fallocate(self._fd, 0, nbytes)
            self._map = mmap.mmap(self._fd, nbytes)
        except OSError:
            os.close(self._fd)
            self._path.unlink(missing_ok=True)
            raise

    def write(self, rows: NDArray[Any]) -> None:
        """Put a contiguous array at the beginning."""
        self._map[: rows.nbytes] = rows.data.cast("B")

    def unregister(self, client: Any) -> None:
        """Have the server forget it, which it may use for a moment longer than the call takes.

        Args:
            client: The client of tritonclient with which it was registered.

        Raises:
            Exception: The client library's: the server does not forget it.
        """
        pause = threading.Event()
        for last in (False,) * _TRIES + (True,):
            try:
                client.unregister_system_shared_memory(self.name)
            except Exception as error:
                if last or "in use" not in str(error):
                    raise
                pause.wait(_PAUSE_S)
            else:
                return

    def close(self) -> None:
        """Unmap and remove it; the memory goes with its last user."""
        self._map.close()
        self._path.unlink(missing_ok=True)
        os.close(self._fd)


def remove_leftovers() -> None:
    """Remove regions of clients that were killed: nobody holds their lock."""
    for path in _SHM.glob(f"{_PREFIX}*"):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # it has just gone, or is another user's
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except OSError:  # its client lives
            continue
        finally:
            os.close(fd)
