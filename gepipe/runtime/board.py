"""What each worker is doing right now, for the supervisor to look at when it dies or hangs.

One cache line a worker in shared memory: the sequence number of the item in work (-1: none) and
when it was begun. Each line has one writer, and nobody waits for anybody.
"""

from __future__ import annotations

import struct
from time import monotonic_ns
from typing import Final

from gepipe.runtime.memory import SharedBuffer

_LINE: Final = struct.Struct("<qq")
_LINE_NBYTES: Final = 64


class Board:
    """The lines of all workers."""

    def __init__(self, buffer: SharedBuffer) -> None:
        self.buffer = buffer
        self._map = buffer.map

    @classmethod
    def create(cls, places: int) -> Board:
        """Make a board with a line for each of `places` workers."""
        board = cls(SharedBuffer.create(places * _LINE_NBYTES))
        for place in range(places):
            board.clear(place)
        return board

    def clear(self, place: int) -> None:
        """Say that nobody works at `place`, before a process starts there."""
        _LINE.pack_into(self._map, place * _LINE_NBYTES, -1, 0)

    def read(self, place: int) -> tuple[int, int]:
        """Return (sequence number in work or -1, `time.monotonic_ns()` of its begin)."""
        seq, begun_ns = _LINE.unpack_from(self._map, place * _LINE_NBYTES)
        return seq, begun_ns

    def line(self, place: int) -> Line:
        """Return the line of a worker, for that worker to write."""
        return Line(self, place)

    def close(self) -> None:
        """Unmap the board."""
        self.buffer.close()


class Line:
    """A worker's own line."""

    def __init__(self, board: Board, place: int) -> None:
        self._board = board
        self._map = board.buffer.map
        self._offset = place * _LINE_NBYTES

    def begin(self, seq: int) -> None:
        """Say which item is in work from now on; -1 for none."""
        _LINE.pack_into(self._map, self._offset, seq, monotonic_ns())
