"""The items of one class that no worker has been given yet, in the order in which they came."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gepipe.runtime.batches import Item
    from gepipe.runtime.memory import Shapes


class WaitingItems:
    """A queue from which items of one shape are taken: only these can share a batch."""

    def __init__(self) -> None:
        self._queues: dict[Shapes, OrderedDict[int, Item]] = {}
        self._count = 0

    def __len__(self) -> int:
        """How many wait."""
        return self._count

    def add(self, item: Item, shapes: Shapes) -> None:
        """Take an item; each has a higher number than those before."""
        self._queues.setdefault(shapes, OrderedDict())[item.seq] = item
        self._count += 1

    def remove(self, seq: int, shapes: Shapes) -> None:
        """Let an item go that is not wanted any more."""
        del self._queues[shapes][seq]
        self._took(shapes, 1)

    def like(self, shapes: Shapes) -> int:
        """Return how many of a shape wait."""
        return len(self._queues.get(shapes, ()))

    def oldest(self) -> Shapes:
        """Return the shape of the item that has waited longest; there must be one."""
        queues = self._queues
        return min(queues, key=lambda shapes: next(iter(queues[shapes])))

    def take(self, shapes: Shapes, count: int) -> list[Item]:
        """Take the oldest items of a shape; there must be so many."""
        queue = self._queues[shapes]
        items = [queue.popitem(last=False)[1] for _ in range(count)]
        self._took(shapes, count)
        return items

    def _took(self, shapes: Shapes, count: int) -> None:
        self._count -= count
        if not self._queues[shapes]:
            del self._queues[shapes]
