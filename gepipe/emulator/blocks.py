"""Blocks of memory by address, the live ones and the fates of the others."""

from __future__ import annotations

import bisect
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from gepipe.emulator.handles import Site
from gepipe.emulator.order import Uses

_REMEMBERED: Final = 4096


@dataclass(eq=False, slots=True)
class Block:
    """A piece of device or pinned memory.

    Attributes:
        base: Its first address.
        size: Its bytes, as asked for.
        kind: "device memory" or "pinned memory".
        shift: What to add to an address to reach its bytes.
        holders: What keeps it in use, such as models.
    """

    base: int
    size: int
    kind: str
    shift: int
    taken: int = 0
    device: int = 0
    holders: list[str] = field(default_factory=list)
    uses: Uses = field(default_factory=Uses)
    site: Site = field(default_factory=Site)

    def __str__(self) -> str:
        return f"{self.kind} {self.base:#x} of {self.size} bytes made at {self.site}"


class Blocks:
    """Live blocks by address, and what became of the others."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._live: dict[int, Block] = {}
        self._dead: OrderedDict[int, str] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, block: Block) -> None:
        """Remember a block."""
        with self._lock:
            bisect.insort(self._starts, block.base)
            self._live[block.base] = block
            self._dead.pop(block.base, None)

    def remove(self, block: Block) -> None:
        """Forget a block, except for its fate."""
        fate = f"{block}, freed at {Site()}"
        with self._lock:
            del self._starts[bisect.bisect_left(self._starts, block.base)]
            del self._live[block.base]
            self._dead[block.base] = fate
            if len(self._dead) > _REMEMBERED:
                self._dead.popitem(last=False)

    def forget(self, address: int) -> None:
        """Forget a block's fate too: its address may now belong to anything."""
        self._dead.pop(address, None)

    def at(self, address: int) -> Block | None:
        """Return the block that an address lies in."""
        block = self._live.get(address)
        if block is not None:
            return block
        with self._lock:
            index = bisect.bisect_right(self._starts, address) - 1
            if index < 0:
                return None
            block = self._live[self._starts[index]]
        return block if address < block.base + block.size else None

    def starting_at(self, address: int) -> Block | None:
        """Return the block that begins at an address."""
        return self._live.get(address)

    def before_and_after(self, address: int) -> tuple[Block | None, Block | None]:
        """Return the blocks around an address that no block begins at."""
        with self._lock:
            index = bisect.bisect_right(self._starts, address)
            before = self._live[self._starts[index - 1]] if index else None
            after = self._live[self._starts[index]] if index < len(self._starts) else None
        return before, after

    def fate(self, address: int) -> str:
        """Return what is known of an address that no block has."""
        return self._dead.get(address, "no block")

    def all(self) -> list[Block]:
        """Return all blocks by address."""
        with self._lock:
            return [self._live[start] for start in self._starts]
