"""Device memory: addresses that the host cannot touch, backed by memory that it never sees.

A card's addresses are reserved without access, so a program that dereferences a device pointer on
the host faults, as it would with a real card. The bytes lie at a constant distance, in memory that
costs nothing until it is written. Addresses are used again as late as possible, so that a use
after free finds no other block in its place.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from gepipe.emulator import native
from gepipe.emulator.blocks import Block, Blocks
from gepipe.emulator.errors import EmulatorError

if TYPE_CHECKING:
    from gepipe.emulator.profile import DeviceSpec
    from gepipe.emulator.shared import SharedCard

_HUGE_ALIGNMENT: Final = 512
_POISON: Final = 0xCD
_POISONED_BYTES: Final = 1 << 20


def charged(size: int, *, spare: int = 32) -> int:
    """Return what an allocation takes, as the CANN manual says: round up to 32, and 32 more."""
    return (size + 31) // 32 * 32 + spare


class DeviceMemory:
    """The memory of one card.

    Args:
        device: The card, as the program counts them.
        spec: How much there is.
        lock: The machine's.
        is_addressable: Whether the host can access it: because it is the card itself.
    """

    def __init__(
        self, device: int, spec: DeviceSpec, lock: threading.RLock, *, is_addressable: bool
    ) -> None:
        self._lock = lock
        self._is_addressable = is_addressable
        self._device = device
        self.total = spec.memory_bytes
        self.used = self._foreign = spec.used_bytes
        self.peak = self.used
        self.blocks = Blocks()
        self.shared: SharedCard | None = None
        self._span = 0
        self.base = 0
        self._shift = 0
        self._next = 0

    def _map(self) -> None:
        for factor in (4, 2, 1):
            self._span = factor * max(self.total, 1 << 20)
            try:
                self.base = native.map_lazily(self._span)
            except MemoryError:
                if factor == 1:
                    raise
            else:
                break
        self._shift = 0
        if not self._is_addressable:
            bytes_at, self.base = self.base, native.reserve(self._span)
            self._shift = bytes_at - self.base
        self._next = self.base

    @property
    def region(self) -> tuple[int, int]:
        """The card's first address, and how many it has."""
        return self.base, self._span

    def owns(self, address: int) -> bool:
        """Whether an address is one of this card's."""
        return self.base <= address < self.base + self._span

    @property
    def free_bytes(self) -> int:
        """What nobody has taken."""
        others = 0 if self.shared is None else self.shared.others_bytes()
        return max(self.total - self.used - others, 0)

    def reserve(self, nbytes: int) -> bool:
        """Take memory that needs no address, such as a model's own; return whether there was."""
        if nbytes > self.free_bytes:
            return False
        self._take(nbytes)
        self.peak = max(self.peak, self.used)
        return True

    def release(self, nbytes: int) -> None:
        """Give back what `reserve` took."""
        self._take(-nbytes)

    def share(self, card: SharedCard) -> None:
        """Share the card with other processes from now on."""
        self.shared = card
        self._take(0)

    def _take(self, nbytes: int) -> None:
        self.used += nbytes
        if self.shared is not None:
            self.shared.take_memory(self.used - self._foreign)

    def allocate(self, size: int, *, spare: int = 32) -> Block | None:
        """Allocate memory; None when there is not enough."""
        taken = charged(size, spare=spare)
        with self._lock:
            if not self.reserve(taken):
                return None
            if not self._span:
                self._map()
            base = self._place(taken)
            block = Block(base, size, "device memory", self._shift, taken, self._device)
            self.blocks.add(block)
        if size <= _POISONED_BYTES:
            native.fill(base + self._shift, _POISON, size)
        return block

    def _place(self, taken: int) -> int:
        """Find addresses, those that were free for longest first."""
        for start in (self._next, self.base):
            at = -(-start // _HUGE_ALIGNMENT) * _HUGE_ALIGNMENT
            while at + taken <= self.base + self._span:
                before, after = self.blocks.before_and_after(at)
                if before is not None and before.base + before.taken > at:
                    at = before.base + before.taken
                elif after is not None and after.base < at + taken:
                    at = after.base + after.taken
                else:
                    self._next = at + taken
                    return at
                at = -(-at // _HUGE_ALIGNMENT) * _HUGE_ALIGNMENT
        raise EmulatorError("device memory is too fragmented for the emulator")

    def free(self, block: Block) -> None:
        """Free a block."""
        with self._lock:
            self.blocks.remove(block)
            self.release(block.taken)
            # Not only the block's own pages: those that it shared with blocks that are gone too.
            before, after = self.blocks.before_and_after(block.base)
            first = before.base + before.size if before is not None else self.base
            last = after.base if after is not None else self.base + self._span
            first = max(first, block.base - native.PAGE)
            last = min(last, block.base + block.size + native.PAGE)
            native.forget(first + self._shift, last - first)

    def close(self) -> None:
        """Give the addresses back."""
        if self._span:
            native.unmap(self.base, self._span)
            if self._shift:
                native.unmap(self.base + self._shift, self._span)
            self._span = 0
