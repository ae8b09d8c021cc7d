"""A feed whose items lie in memory of its own, and tiny stages that read and write there.

Workers import this module to find the bodies, so it imports nothing heavy at its top.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gepipe.io.source import Entry
from gepipe.runtime.feed import Feed, Portion
from gepipe.runtime.memory import SharedBuffer
from tests.support import Read, Write

if TYPE_CHECKING:
    from gepipe.runtime.events import Outcome

_CELL = struct.Struct("<qq")


class LentFeed(Feed):
    """Numbers in cells of shared memory; a cell is filled anew once its item is `used`, or settled.

    Attributes:
        kept: Whether cells are free only when their items are settled.
        used_seqs: What pre was done with, in the order of the calls.
        settled_seqs: What was emitted.
    """

    def __init__(self, numbers: Sequence[int], cells: int, *, kept: bool = False) -> None:
        self.total: int | None = len(numbers)
        self.memory: SharedBuffer = SharedBuffer.create(cells * _CELL.size)
        self.kept = kept
        self.used_seqs: list[int] = []
        self.settled_seqs: list[int] = []
        self._numbers = list(numbers)
        self._taken = 0
        self._free = list(range(cells))
        self._cells: dict[int, int] = {}
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def take(self, count: int) -> Portion:
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        entries = []
        while len(entries) < count and self._free and self._taken < len(self._numbers):
            cell, number = self._free.pop(), self._numbers[self._taken]
            _CELL.pack_into(self.memory.map, cell * _CELL.size, number, -1)
            entries.append(Entry(f"item {number}", cell))
            self._cells[self._taken] = cell
            self._taken += 1
        return Portion(entries, self._taken == len(self._numbers))

    def used(self, seqs: Sequence[int]) -> None:
        self.used_seqs += seqs
        if not self.kept:
            self._let_go(seqs)

    def settled(self, outcomes: Sequence[Outcome]) -> None:
        seqs = [outcome.index for outcome in outcomes]
        self.settled_seqs += seqs
        if self.kept:
            self._let_go(seqs)

    def _let_go(self, seqs: Sequence[int]) -> None:
        for seq in seqs:
            cell = self._cells.pop(seq)
            _CELL.pack_into(self.memory.map, cell * _CELL.size, -7, -7)  # who still looks sees this
            self._free.append(cell)
        os.eventfd_write(self._bell, 1)

    def fileno(self) -> int:
        return self._bell

    def close(self) -> None:
        os.close(self._bell)
        self.memory.close()


class WriteLent(Write):
    """Reads its number from the memory of the feed and notes it there once more."""

    def attach(self, buffer: SharedBuffer) -> None:
        self.buffer = buffer

    def write(self, payload: Any, rows: Mapping[str, Any]) -> bytes:
        number, _ = _CELL.unpack_from(self.buffer.map, payload * _CELL.size)
        meta = super().write(struct.pack("<q", number), rows)
        _CELL.pack_into(self.buffer.map, payload * _CELL.size, number, number)
        return meta + b" in %d" % payload


@dataclass
class ReadLent(Read):
    """Checks what pre left in the memory of the feed, where that is still there."""

    kept: bool = True

    def attach(self, buffer: SharedBuffer) -> None:
        self.buffer = buffer

    def read(self, rows: Mapping[str, Any], meta: bytes) -> bytes:
        meta, _, cell = meta.partition(b" in ")
        if not self.kept:
            return super().read(rows, meta)
        number, again = _CELL.unpack_from(self.buffer.map, int(cell) * _CELL.size)
        record = super().read(rows, meta)
        if meta != b"meta of %d" % number or number != again:
            raise AssertionError(f"cell {cell!r} holds {number}, {again} instead of {meta!r}")
        return record
