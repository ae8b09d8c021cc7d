"""Shared memory through which a server on the same host reads a large tensor."""

from __future__ import annotations

import mmap
import os
import secrets
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
        self.name = f"gepipe_client_{os.getpid()}_{secrets.token_hex(4)}"
        self.key = f"/{self.name}"
        self.nbytes = nbytes
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        fd = os.open(f"/dev/shm{self.key}", flags, 0o600)  # noqa: S108 - where shm_open looks
        try:
            os.posix_fallocate(fd, 0, nbytes)
            self._map = mmap.mmap(fd, nbytes)
        except OSError:
            self.unlink()
            raise
        finally:
            os.close(fd)

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

    def unlink(self) -> None:
        """Remove the name; the memory goes with its last user."""
        with suppress(FileNotFoundError):
            os.unlink(f"/dev/shm{self.key}")  # noqa: PTH108, S108 - as above

    def close(self) -> None:
        """Unmap and remove it."""
        self._map.close()
        self.unlink()
