"""Cards that several processes share: who is on a card, how busy it is, what memory is taken.

Each process that uses a card binds one of a limited number of abstract socket names, which the
kernel frees when it ends, however it ends. With `GEPIPE_ACL_MACHINE`, the processes that have the
same value there share cards for real: one small file for each card holds until when its engines are
busy and how much memory each process has taken. Without, only the number of processes is shared.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

#: Environment variable: processes with the same value share their cards.
MACHINE: Final = "GEPIPE_ACL_MACHINE"
_EADDRINUSE: Final = 98
_ENGINES: Final = {"compute": 0, "up": 8, "down": 16}
_USED: Final = 64


class Place:
    """One process's place on a card."""

    def __init__(self, prefix: str, number: int, held: socket.socket) -> None:
        self.prefix, self.number, self._held = prefix, number, held

    @classmethod
    def take(cls, prefix: str, limit: int) -> Place | None:
        """Take the first free place of those on a card; None when all are taken."""
        for number in range(limit):
            if (held := _bind(prefix, number)) is not None:
                return cls(prefix, number, held)
        return None

    def is_taken(self, number: int) -> bool:
        """Whether a process has another place of the same card."""
        probe = _bind(self.prefix, number)
        if probe is not None:
            probe.close()
        return probe is None

    def close(self) -> None:
        """Give the place up."""
        self._held.close()


def _bind(prefix: str, number: int) -> socket.socket | None:
    place = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        place.bind(f"\0{prefix}/{number}".encode())
    except OSError as error:
        if error.errno == _EADDRINUSE:
            place.close()
            return None
    return place  # bound, or where such names do not exist


class SharedCard:
    """Time and memory of a card that processes share."""

    def __init__(self, machine: str, card: int, place: Place, limit: int) -> None:
        folder = Path(tempfile.gettempdir()) / f"gepipe-emulator-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        self._path = folder / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', machine)}-{card}"
        self._place, self._limit = place, limit
        size = _USED + 8 * limit
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if os.fstat(self._fd).st_size < size:
            os.ftruncate(self._fd, size)
        self._map = mmap.mmap(self._fd, size)
        self.take_memory(0)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def occupy(self, engine: str, ready_s: float, seconds: float) -> float:
        """Use an engine of the card as soon as it is free; return from when."""
        at = _ENGINES[engine]
        with self._alone():
            (busy_s,) = struct.unpack_from("<d", self._map, at)
            start_s = max(ready_s, float(busy_s))
            struct.pack_into("<d", self._map, at, start_s + seconds)
        return start_s

    def take_memory(self, nbytes: int) -> None:
        """Tell the others how much memory this process has."""
        struct.pack_into("<Q", self._map, _USED + 8 * self._place.number, nbytes)

    def others_bytes(self) -> int:
        """Return how much memory the other processes have."""
        used = struct.unpack_from(f"<{self._limit}Q", self._map, _USED)
        return sum(
            nbytes
            for number, nbytes in enumerate(used)
            if nbytes and number != self._place.number and self._place.is_taken(number)
        )

    def close(self, *, leave: bool) -> None:
        """Stop sharing.

        Args:
            leave: Whether this process leaves the card; a forked child only drops its copy.
        """
        if leave:
            self.take_memory(0)
            others = (n for n in range(self._limit) if n != self._place.number)
            if not any(self._place.is_taken(number) for number in others):
                with suppress(OSError):
                    self._path.unlink()
        self._map.close()
        os.close(self._fd)
