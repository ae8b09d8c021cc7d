"""Where the tensors of requests lie: in memory that the server shares with the processes it runs.

A worker reads large rows there, in place, instead of being handed a copy. The memory is a file of
/dev/shm, which the server lets grow; what was mapped of it once stays mapped for as long as the
process lives.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gepipe.runtime.lent import LentRows
from gepipe.runtime.memory import SharedBuffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHM: Final = "/dev/shm/"  # noqa: S108 - the server's
_MAPS: Final = Path("/proc/self/maps")


class _Region(NamedTuple):
    """A part of this process's memory that is a part of a file."""

    begin: int
    end: int
    offset: int
    path: str


def view_of(tensor: Any) -> NDArray[Any]:
    """Return a tensor of numbers as an array, read-only, in the server's memory.

    What the server itself offers as NumPy's array is a copy. It puts tensors on any boundary.
    """
    import numpy as np

    try:
        view: NDArray[Any] = np.from_dlpack(tensor)
    except (AttributeError, BufferError, RuntimeError, TypeError):  # a server or NumPy without it
        view = tensor.as_numpy()
    return view


class ServerMemory:
    """Finds arrays in the server's memory. Used by one thread."""

    def __init__(self) -> None:
        self._regions: list[_Region] = []
        self._path = ""
        self._buffer: SharedBuffer | None = None

    def find(self, arrays: Sequence[NDArray[Any]]) -> LentRows | None:
        """Return where arrays lie; None if a worker cannot read them there."""
        places = [self._place_of(array) for array in arrays]
        path = places[0][0] if places and places[0] is not None else ""
        offsets, end = [], 0
        for place, array in zip(places, arrays, strict=True):
            if place is None or place[0] != path:
                return None
            offsets.append(place[1])
            end = max(end, place[1] + array.nbytes)
        buffer = self._opened(path, end) if path else None
        return None if buffer is None else LentRows(buffer, tuple(offsets))

    def close(self) -> None:
        """Close the file. Closing twice is harmless."""
        if self._buffer is not None:
            self._buffer.close()
            self._buffer = None

    def _place_of(self, array: NDArray[Any]) -> tuple[str, int] | None:
        """Return the file and the offset there."""
        if not array.flags.c_contiguous:
            return None
        address = int(array.ctypes.data)
        region = self._region(address)
        if region is None:
            self._regions = sorted(_mapped())
            region = self._region(address)
        if region is None or address + array.nbytes > region.end:
            return None
        return region.path, region.offset + address - region.begin

    def _region(self, address: int) -> _Region | None:
        at = bisect_right(self._regions, address, key=lambda region: region.begin) - 1
        region = self._regions[at] if at >= 0 else None
        return region if region is not None and address < region.end else None

    def _opened(self, path: str, end: int) -> SharedBuffer | None:
        """Return the file, opened anew if it has grown."""
        if self._buffer is None or path != self._path or end > self._buffer.nbytes:
            self.close()
            with suppress(OSError):
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self._buffer = SharedBuffer(fd, os.fstat(fd).st_size)
                self._path = path
        return self._buffer


def _mapped() -> Iterator[_Region]:
    for line in _MAPS.read_text().splitlines():
        addresses, _, offset, _, _, *path = line.split(None, 5)
        if path and path[0].startswith(_SHM) and not path[0].endswith(" (deleted)"):
            begin, end = (int(each, 16) for each in addresses.split("-"))
            yield _Region(begin, end, int(offset, 16), path[0])
