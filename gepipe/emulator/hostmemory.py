"""Host memory: pinned blocks, and what programs took the address of."""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gepipe.emulator import native
from gepipe.emulator.blocks import Block, Blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gepipe.emulator.device import Device
    from gepipe.emulator.ground import Ground

_CANARY: Final = b"\xa5" * 64
_FRESH, _FREED = 0xCD, 0xDD
_QUARANTINE_BYTES: Final = 64 << 20
_POISONED_BYTES: Final = 1 << 20
_WATCHED: Final = 16
_WATCHED_BYTES: Final = 64 << 20


@dataclass(slots=True)
class Watched:
    """An object whose address a program took.

    Attributes:
        base: Its first address.
        size: Its bytes.
        name: How messages name it.
        owner: The object. Held, so that its address belongs to nothing else.
    """

    base: int
    size: int
    name: str
    owner: Any

    @property
    def is_dead(self) -> bool:
        """Whether the program has dropped the object."""
        return sys.getrefcount(self.owner) <= _LONE


def _lone_count() -> int:
    lone = Watched(0, 0, "", bytearray(1))
    return sys.getrefcount(lone.owner)


_LONE: Final = _lone_count()


class HostMemory:
    """Pinned blocks, and the objects that programs took the address of."""

    def __init__(self, ground: Ground, devices: Sequence[Device]) -> None:
        self._ground = ground
        self._devices = devices
        self.pinned = Blocks()
        self._watched: tuple[Watched, ...] = ()
        self._quarantine: deque[Block] = deque()

    def watch(self, base: int, size: int, name: str, owner: Any) -> None:
        """Remember an object whose address a program takes, among the last few."""
        with self._ground.lock:
            kept = [each for each in self._watched if each.base != base]
            kept.append(Watched(base, size, name, owner))
            while len(kept) > 2 and (
                len(kept) > _WATCHED or sum(each.size for each in kept) > _WATCHED_BYTES
            ):
                del kept[0]
            self._watched = tuple(kept)

    def watched(self, address: int) -> Watched | None:
        """Return the object that an address lies in."""
        for each in reversed(self._watched):
            if each.base <= address < each.base + max(each.size, 1):
                return each
        return None

    def block(self, address: int) -> Block | None:
        """Return the live device or pinned block that an address lies in."""
        for device in self._devices:
            if device.memory.owns(address):
                return device.memory.blocks.at(address)
        return self.pinned.at(address)

    def is_device(self, address: int) -> bool:
        """Whether an address is one of a card's, live or not."""
        return any(device.memory.owns(address) for device in self._devices)

    def locate(self, address: int, size: int) -> Block | None:
        """Return the block of `size` bytes from an address; None for ordinary host memory.

        Raises:
            EmulatorError: The block was freed, or ends before.
        """
        block = self.block(address)
        if block is None:
            if self.is_device(address) or self.pinned.fate(address) != "no block":
                self._ground.misuse(f"{address:#x} is {self.describe(address)}")
            return None
        if address + size > block.base + block.size:
            self._ground.misuse(f"{size} bytes from {address:#x} reach beyond the end of {block}")
        return block

    def describe(self, address: int) -> str:
        """Return what is known of an address."""
        if (block := self.block(address)) is not None:
            return f"inside {block}" if address != block.base else str(block)
        for device in self._devices:
            if device.memory.owns(address):
                fate = device.memory.blocks.fate(address)
                return "device memory that is not allocated" if fate == "no block" else fate
        fate = self.pinned.fate(address)
        return "not memory of ACL" if fate == "no block" else fate

    def allocate(self, size: int) -> Block | None:
        """Allocate pinned memory; None when there is not enough."""
        base = native.allocate(size + len(_CANARY))
        if not base:
            return None
        native.fill(base, _FRESH, min(size, _POISONED_BYTES))
        ctypes.memmove(base + size, _CANARY, len(_CANARY))
        block = Block(base, size, "pinned memory", 0)
        with self._ground.lock:
            self.pinned.add(block)
        return block

    def free(self, block: Block) -> None:
        """Free pinned memory, though not at once: a late reader finds a pattern, not a fault."""
        if ctypes.string_at(block.base + block.size, len(_CANARY)) != _CANARY:
            self._ground.misuse(f"something wrote beyond the end of {block}")
        with self._ground.lock:
            self.pinned.remove(block)
            native.fill(block.base, _FREED, min(block.size, _POISONED_BYTES))
            self._quarantine.append(block)
            held = sum(each.size for each in self._quarantine)
            while held > _QUARANTINE_BYTES or len(self._quarantine) > 256:
                old = self._quarantine.popleft()
                held -= old.size
                self.pinned.forget(old.base)
                native.free(old.base)

    def close(self) -> None:
        """Give the quarantined memory back; what was not freed stays, as views may exist."""
        while self._quarantine:
            native.free(self._quarantine.popleft().base)
        self._watched = ()
