"""Which work is dealt next, and in which portions."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Sequence

from gepipe.runtime.batches import Execution

#: Work of about this long goes into one ticket: long against the cost of a ticket (some 50 µs for
#: both sides together), short against a batch, so that workers finish a batch together.
TICKET_NS = 4_000_000


def rows_per_ticket(waiting: int, ns_per_item: float, workers: int) -> int:
    """Return how many rows a ticket should hold.

    Args:
        waiting: Rows that wait to be dealt, at least 1.
        ns_per_item: What a row has cost so far; 0 while nothing is known.
        workers: Workers that are up, at least 1.
    """
    if not ns_per_item:
        return 1
    return max(1, min(round(TICKET_NS / ns_per_item), -(-waiting // workers)))


class InOrder:
    """The next batch is the oldest one.

    Another order (two classes with a reserved share, say) is another class with these methods.
    """

    def __init__(self) -> None:
        self._queue: deque[Execution] = deque()
        self._returned: list[Execution] = []

    def __len__(self) -> int:
        return len(self._returned) + len(self._queue)

    def push(self, execution: Execution) -> None:
        """Add a batch that has become ready."""
        self._queue.append(execution)

    def push_back(self, executions: Sequence[Execution]) -> None:
        """Return what was taken and not finished: it comes before all others, the oldest first."""
        for execution in executions:
            insort(self._returned, execution, key=lambda each: each.seq)

    def peek(self) -> Execution:
        """Return the next one and leave it."""
        return self._returned[0] if self._returned else self._queue[0]

    def pop(self) -> Execution:
        """Take the next one."""
        return self._returned.pop(0) if self._returned else self._queue.popleft()
