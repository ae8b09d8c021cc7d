"""Memory of a device.

The memory for the tensors of batches comes from one block, allocated once and cut by a buddy
allocator: `acl.rt.malloc` takes milliseconds, so it has no place in the path of a batch. What was
given back is kept by size for the next batch of the same shapes, and joined again only when nothing
else fits, or when the device is idle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gepipe.engines.ge.buddy import Buddy, charged, span
from gepipe.engines.ge.runtime import DDR_MEMORY, HBM_MEMORY, HUGE_FIRST, Acl
from gepipe.errors import DeviceMemoryError, InternalError

#: Smallest block that is taken of a device.
_LEAST_POOL: Final = 1 << 16
#: Fragmentation from which on it is worth joining the pieces kept for the next batch.
_FRAGMENTED: Final = 0.5


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """State of a pool, in bytes.

    Attributes:
        capacity: All of it.
        in_use: In pieces that are out.
        peak: The most that `in_use` ever was.
        prepared: Kept by size for the next batch.
        largest: The largest piece that would fit now.
        blocks: How many blocks of device memory it consists of.
    """

    capacity: int
    in_use: int
    peak: int
    prepared: int
    largest: int
    blocks: int

    @property
    def fragmentation(self) -> float:
        """Share of the free bytes that the largest free piece does not cover, 0 to 1."""
        free = self.capacity - self.in_use - self.prepared
        return 1 - self.largest / free if free else 0.0


class DevicePool:
    """Pieces of device memory, each on a 64-byte boundary. Close it after everything is freed.

    Args:
        acl: The functions of ACL.
        nbytes: Bytes to begin with.
        elastic: Whether to take more from the device when they do not suffice.
    """

    def __init__(self, acl: Acl, nbytes: int, *, elastic: bool = False) -> None:
        self._acl = acl
        self._elastic = elastic
        self._blocks: list[tuple[int, Buddy]] = []
        self._out: dict[int, tuple[int, Buddy, int]] = {}  # address: base, block, size
        self._prepared: dict[int, list[tuple[int, int, Buddy]]] = {}  # size: address, base, block
        self._peak = 0
        self._in_use = 0
        if nbytes:
            self.grow(nbytes)

    def grow(self, nbytes: int) -> None:
        """Take another block of the device's memory.

        Raises:
            DeviceMemoryError: The device has no more.
        """
        nbytes = max(nbytes, _LEAST_POOL)
        base = self._acl.malloc(nbytes, HUGE_FIRST)
        self._blocks.append((base, Buddy(nbytes)))
        self._acl.memset(base, nbytes, 0, nbytes)  # fresh device memory is garbage

    def allocate(self, nbytes: int) -> int:
        """Return the address of a piece of at least `nbytes`.

        Raises:
            DeviceMemoryError: It does not fit.
        """
        kept = self._prepared.get(nbytes)
        if kept:
            address, base, block = kept.pop()
        else:
            address, base, block = self._cut(nbytes)
        self._out[address] = base, block, nbytes
        self._in_use = in_use = self._in_use + nbytes
        if in_use > self._peak:  # noqa: PLR1730 - max() costs half as much as all the rest
            self._peak = in_use
        return address

    def free(self, address: int) -> None:
        """Take a piece back, and keep it for the next of its size.

        Raises:
            InternalError: It is not out.
        """
        piece = self._out.pop(address, None)
        if piece is None:
            raise InternalError(f"device memory {address:#x} is freed twice, or not of this pool")
        base, block, nbytes = piece
        self._in_use -= nbytes
        if (kept := self._prepared.get(nbytes)) is None:
            kept = self._prepared[nbytes] = []
        kept.append((address, base, block))

    def prepare(self, sizes: Iterable[int]) -> None:
        """Keep a piece of each size ready, as far as there is room."""
        wanted: dict[int, int] = {}
        for size in sizes:
            wanted[size] = wanted.get(size, 0) + 1
        for size, count in sorted(wanted.items(), reverse=True):
            kept = self._prepared.setdefault(size, [])
            while len(kept) < count:
                if (piece := self._fit(size)) is None:
                    return
                kept.append(piece)

    def compact(self) -> None:
        """Join everything that is not out. For moments when nothing runs."""
        for kept in self._prepared.values():
            for address, base, block in kept:
                block.free(address - base)
        self._prepared.clear()

    def tidy(self) -> None:
        """Compact where the free memory lies in pieces. For moments when nothing runs."""
        if self._prepared and self.statistics().fragmentation > _FRAGMENTED:
            self.compact()

    def statistics(self) -> PoolStatistics:
        """Return how full it is."""
        prepared = sum(size * len(kept) for size, kept in self._prepared.items())
        return PoolStatistics(
            sum(block.capacity for _, block in self._blocks),
            self._in_use,
            self._peak,
            prepared,
            max((block.largest_free for _, block in self._blocks), default=0),
            len(self._blocks),
        )

    def close(self) -> None:
        """Give the memory back to the device. Closing twice is harmless.

        Raises:
            InternalError: Pieces are still out: a leak of the engine.
        """
        leaked = list(self._out.values())
        self._out.clear()
        self._prepared.clear()
        blocks, self._blocks = self._blocks, []
        for base, _ in reversed(blocks):
            self._acl.free(base)
        if leaked:
            raise InternalError(
                f"{len(leaked)} pieces of device memory, {sum(size for *_, size in leaked)} bytes, "
                "were never freed"
            )

    def _fit(self, nbytes: int) -> tuple[int, int, Buddy] | None:
        for base, block in self._blocks:
            if (offset := block.allocate(nbytes)) is not None:
                return base + offset, base, block
        return None

    def _give_back(self) -> None:
        """Give blocks back to the device in which nothing is left: what they held has grown."""
        for base, _ in [each for each in self._blocks if not each[1].in_use]:
            self._acl.free(base)
        self._blocks = [each for each in self._blocks if each[1].in_use]

    def _is_in_pieces(self, nbytes: int) -> bool:
        """Whether so many bytes are free, though not in one piece.

        The tensors of batches of several sizes, allocated as the batches come, may lie so that
        those of the largest batch find no place among them.
        """
        free = sum(block.free_bytes for _, block in self._blocks)
        return free >= span([nbytes])

    def _cut(self, nbytes: int) -> tuple[int, int, Buddy]:
        piece = self._fit(nbytes)
        if piece is None and self._prepared:
            self.compact()
            piece = self._fit(nbytes)
        if piece is None and (self._elastic or self._is_in_pieces(nbytes)):
            self._give_back()
            self.grow(span([nbytes, nbytes]))
            piece = self._fit(nbytes)
        if piece is None:
            state = self.statistics()
            raise DeviceMemoryError(
                f"{nbytes} bytes do not fit into the device-memory pool of {state.capacity} bytes: "
                f"{state.in_use} are in use, the largest free piece has {state.largest}; use a "
                "smaller batch_size"
            )
        return piece


def free_memory(acl: Acl) -> tuple[int, int]:
    """Return free and total bytes of the current device.

    Chips have either HBM or DDR. Asked for the kind that it lacks, an older release answers 0, a
    newer one with the kind that it has.
    """
    for kind in (HBM_MEMORY, DDR_MEMORY):
        free, total = acl.get_mem_info(kind)
        if total:
            return int(free), int(total)
    return 0, 0


def gib(nbytes: int) -> str:
    """Return a size as text."""
    if nbytes >= 1 << 27:
        return f"{nbytes / 2**30:.2f} GiB"
    return f"{nbytes / 2**20:.1f} MiB" if nbytes >= 1 << 17 else f"{nbytes / 2**10:.1f} KiB"


__all__ = ["DevicePool", "PoolStatistics", "charged", "free_memory", "gib"]
