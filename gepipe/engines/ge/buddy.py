"""Buddy allocation of a range of bytes: offsets only, no memory.

Sizes follow the CANN manual on cutting up device memory: a piece of n bytes takes n rounded up to
32, and 32 more, and begins on a 64-byte boundary. A piece keeps only the sixteenths of its
power-of-two block that it needs; the rest goes back at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: Bytes of the smallest block. A multiple of the alignment of device memory, 64.
UNIT: Final = 256
_SHIFT: Final = UNIT.bit_length() - 1
_SIXTEENTH: Final = 4


def charged(nbytes: int) -> int:
    """Return the bytes that a piece of `nbytes` takes of device memory."""
    return (nbytes + 31) // 32 * 32 + 32


def units(nbytes: int) -> int:
    """Return the units that are kept for a piece of `nbytes`."""
    wanted = (charged(nbytes) + UNIT - 1) >> _SHIFT
    grain = max(0, (wanted - 1).bit_length() - _SIXTEENTH)
    return (wanted + (1 << grain) - 1) >> grain << grain


class Buddy:
    """Which parts of a range are free.

    Attributes:
        capacity: Bytes of the range.
        in_use: Bytes of the pieces that are out.
    """

    def __init__(self, nbytes: int) -> None:
        total = nbytes >> _SHIFT
        self.capacity = total << _SHIFT
        self.in_use = 0
        self._free: list[set[int]] = [set() for _ in range(total.bit_length() + 1)]
        self._held: dict[int, int] = {}
        self._put_run(0, total)

    def allocate(self, nbytes: int) -> int | None:
        """Return the offset of a piece of `nbytes`, as low as possible, or None."""
        kept = units(nbytes)
        order = (kept - 1).bit_length()
        found = next((at for at in range(order, len(self._free)) if self._free[at]), None)
        if found is None:
            unit = self._allocate_run(kept)
            if unit is None:
                return None
        else:
            unit = min(self._free[found])
            self._free[found].remove(unit)
            while found > order:
                found -= 1
                self._free[found].add(unit + (1 << found))
            self._put_run(unit + kept, (1 << order) - kept)
        self._held[unit] = kept
        self.in_use += kept << _SHIFT
        return unit << _SHIFT

    def _allocate_run(self, kept: int) -> int | None:
        """Take a run of neighbouring free blocks, where no single one is large enough."""
        for order in range(min(kept.bit_length(), len(self._free)) - 1, -1, -1):
            for unit in sorted(self._free[order]):
                run: list[tuple[int, int]] = []
                at = unit
                while at < unit + kept and (size := self._order_at(at)) is not None:
                    run.append((at, size))
                    at += 1 << size
                if at >= unit + kept:
                    for start, size in run:
                        self._free[size].remove(start)
                    self._put_run(unit + kept, at - unit - kept)
                    return unit
        return None

    def _order_at(self, unit: int) -> int | None:
        """Return the order of the free block that begins at a unit."""
        return next((at for at, blocks in enumerate(self._free) if unit in blocks), None)

    def free(self, offset: int) -> None:
        """Take a piece back.

        Raises:
            KeyError: There is none at this offset.
        """
        unit = offset >> _SHIFT
        kept = self._held.pop(unit)
        self.in_use -= kept << _SHIFT
        self._put_run(unit, kept)

    @property
    def largest_free(self) -> int:
        """Bytes of the largest free block."""
        order = max((at for at, blocks in enumerate(self._free) if blocks), default=-1)
        return 0 if order < 0 else UNIT << order

    @property
    def free_bytes(self) -> int:
        """Bytes that are free."""
        return self.capacity - self.in_use

    def _put_run(self, unit: int, count: int) -> None:
        """Free a run of units, block by block, each as large as its place allows."""
        while count:
            order = count.bit_length() - 1
            if unit:
                order = min(order, (unit & -unit).bit_length() - 1)
            self._put(unit, order)
            unit += 1 << order
            count -= 1 << order

    def _put(self, unit: int, order: int) -> None:
        while (buddy := unit ^ (1 << order)) in self._free[order]:
            self._free[order].remove(buddy)
            unit = min(unit, buddy)
            order += 1
        self._free[order].add(unit)


def span(sizes: Iterable[int]) -> int:
    """Return how large a range must be to take pieces of these sizes, largest first."""
    ordered = sorted(sizes, reverse=True)
    if not ordered:
        return 0
    needed = sum(units(size) for size in ordered)
    while not _fits(needed << _SHIFT, ordered):
        needed += max(1, needed >> _SIXTEENTH)
    return needed << _SHIFT


def _fits(nbytes: int, sizes: Iterable[int]) -> bool:
    trial = Buddy(nbytes)
    return all(trial.allocate(size) is not None for size in sizes)
