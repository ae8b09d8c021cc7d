"""Keeps what post works on in input order, for operators that remember what came before.

Items become ready in any order, since batches are written and executed side by side. A row is
given to post once all before it were, or were set aside. The batch that is next in input order
always finds an output slot: if those behind it could take them all, none would ever become free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from gepipe.runtime.batches import Batch, Item
from gepipe.runtime.order import Reorderer


class InputOrder:
    """What may go on to post, and what has to wait for something before it.

    Attributes:
        to_read: Rows that may be read, in order.
    """

    def __init__(self, first: int) -> None:
        self.to_read: deque[tuple[Batch, Item]] = deque()
        self._rows: Reorderer[tuple[Batch, Item] | None] = Reorderer(first)
        self._unplaced: deque[Batch] = deque()

    def add(self, batch: Batch, items: Sequence[Item]) -> None:
        """Take rows that were executed."""
        for item in items:
            self._push(item.seq, (batch, item))

    def skip(self, item: Item) -> None:
        """Take an item that was set aside, in post or before."""
        if item.seq >= self._rows.next_seq:
            self._push(item.seq, None)

    def _push(self, seq: int, row: tuple[Batch, Item] | None) -> None:
        self.to_read.extend(each for each in self._rows.push(seq, row) if each is not None)

    def begin(self, batch: Batch) -> None:
        """Take the next batch, which will need an output slot."""
        self._unplaced.append(batch)

    def may_place(self, batch: Batch, free: int) -> bool:
        """Whether a batch may have one of the `free` output slots."""
        return free > 1 or batch is self._unplaced[0]

    def placed(self, batch: Batch) -> None:
        """Take notice that a batch has its output slot, or needs none."""
        self._unplaced.remove(batch)
