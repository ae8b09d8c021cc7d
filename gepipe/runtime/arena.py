"""Shared memory for payloads of any size, dealt out by the process that hands them over."""

from __future__ import annotations

import bisect
import fcntl
import os
from typing import Final

from gepipe.runtime.limits import told
from gepipe.runtime.memory import SharedBuffer

#: Pieces start at multiples of a page, so that reserving one touches no other.
_GRAIN: Final = 4096


class Arena:
    """Pieces of one memfd: lowest first, neighbours joined when they are free again.

    The memfd has its full size from the start, but takes memory only as pieces are first dealt out:
    what is reserved then stays, and is dealt out before new.

    Attributes:
        memory: All of it.
        used: Bytes that are dealt out.
    """

    def __init__(self, nbytes: int) -> None:
        size = max(_GRAIN, nbytes - nbytes % _GRAIN)
        with told("shared memory"):
            fd = os.memfd_create("gepipe-payloads", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self.memory = SharedBuffer(fd, size)
        self.used = 0
        self._reserved = 0
        self._starts = [0]  # of the free pieces, ascending
        self._sizes = [size]
        self._dealt: dict[int, int] = {}

    def __len__(self) -> int:
        """How many pieces are dealt out."""
        return len(self._dealt)

    def allocate(self, nbytes: int) -> int | None:
        """Return the offset of a piece, or None if there is no room for it now."""
        size = -(-nbytes // _GRAIN) * _GRAIN
        index = next((i for i, room in enumerate(self._sizes) if room >= size), None)
        if index is None:
            return None
        start = self._starts[index]
        if not self._reserve(start + size):
            return None
        if self._sizes[index] == size:
            del self._starts[index], self._sizes[index]
        else:
            self._starts[index] += size
            self._sizes[index] -= size
        self._dealt[start] = size
        self.used += size
        return start

    def free(self, start: int) -> None:
        """Take a piece back."""
        size = self._dealt.pop(start)
        self.used -= size
        index = bisect.bisect(self._starts, start)
        end = start + size
        if index < len(self._starts) and self._starts[index] == end:
            size += self._sizes[index]
            del self._starts[index], self._sizes[index]
        if index and self._starts[index - 1] + self._sizes[index - 1] == start:
            self._sizes[index - 1] += size
        else:
            self._starts.insert(index, start)
            self._sizes.insert(index, size)

    def _reserve(self, end: int) -> bool:
        """Have memory behind the first `end` bytes, or a writer would die of SIGBUS."""
        if end > self._reserved:
            try:
                os.posix_fallocate(self.memory.fd, self._reserved, end - self._reserved)
            except OSError:
                return False
            self._reserved = end
        return True

    def close(self) -> None:
        """Give the memory back once nobody else holds it. Closing twice is harmless."""
        self.memory.close()
