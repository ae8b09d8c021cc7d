"""The items that are not answered yet: who waits, until when, and what they were told."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from gepipe.io.failures import Failure
from gepipe.runtime.batches import Item
from gepipe.runtime.memory import Shapes
from gepipe.serving.events import Answer, Arrived, Refusal
from gepipe.serving.kinds import EXPIRED, OVERLOADED, UNAVAILABLE
from gepipe.serving.waiting import WaitingItems

BOTH: Final = (True, False)


@dataclass(slots=True)
class Unanswered:
    """An item that is not answered yet.

    Attributes:
        item: The item.
        realtime: Its class.
        arrived: When it came.
        shapes: Its row shapes; see `Arrived`.
        waiting: Whether no worker has been given it yet.
    """

    item: Item
    realtime: bool
    arrived: float
    shapes: Shapes
    waiting: bool = False


class Backlog:
    """All of them, with a queue for each class.

    Attributes:
        answers: What is to be told, for whoever takes it from here.
        failures: Failures so far, by kind.
        done: Items answered with a record.
    """

    def __init__(self, most: int, stage: str) -> None:
        """Begin with none.

        Args:
            most: Items of a class that may wait.
            stage: Named in failures that are no worker's.
        """
        self.answers: list[Answer] = []
        self.failures: Counter[str] = Counter()
        self.done = 0
        self._most = most
        self._stage = stage
        self._items: dict[int, Unanswered] = {}
        self._waiting = {c: WaitingItems() for c in BOTH}
        self._deadlines: list[tuple[float, int]] = []

    def __contains__(self, seq: int) -> bool:
        """Whether somebody still waits for the answer."""
        return seq in self._items

    def __len__(self) -> int:
        """How many are not answered."""
        return len(self._items)

    def waiting(self, realtime: bool) -> int:
        """Return how many of a class no worker has been given yet."""
        return len(self._waiting[realtime])

    def waiting_like(self, realtime: bool, shapes: Shapes) -> int:
        """Return how many of them have these row shapes."""
        return self._waiting[realtime].like(shapes)

    def next_shapes(self, realtime: bool) -> Shapes:
        """Return the row shapes of the one that has waited longest; there must be one."""
        return self._waiting[realtime].oldest()

    def next_deadline(self) -> float:
        """Return when `expire` should be called."""
        while self._deadlines and self._deadlines[0][1] not in self._items:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else math.inf

    def arrive(self, event: Arrived, now: float, closed: str | None) -> None:
        """Take an item into its queue, or answer at once why not.

        Args:
            event: The item.
            now: The time.
            closed: Why nothing is taken any more.
        """
        queue = self._waiting[event.realtime]
        item = Item(event.seq, -1, "", event.payload)
        entry = Unanswered(item, event.realtime, now, event.shapes)
        self._items[event.seq] = entry
        if closed is not None:
            self.drop(event.seq, UNAVAILABLE, closed)
        elif len(queue) >= self._most:
            self.drop(
                event.seq,
                OVERLOADED,
                f"exceeds maximum queue size: {len(queue):,} items wait already",
            )
        elif event.deadline <= now:
            self.drop(event.seq, EXPIRED, "its time was over when it arrived")
        else:
            entry.waiting = True
            queue.add(item, event.shapes)
            if event.deadline < math.inf:
                heappush(self._deadlines, (event.deadline, event.seq))

    def take(self, realtime: bool, shapes: Shapes, count: int) -> list[Item]:
        """Take the oldest waiting items of a class and a shape, to be given to a worker."""
        items = self._waiting[realtime].take(shapes, count)
        for item in items:
            self._items[item.seq].waiting = False
        return items

    def waited_s(self, seq: int, now: float) -> float:
        """Return how long ago an item arrived; 0 if it is answered already."""
        entry = self._items.get(seq)
        return now - entry.arrived if entry is not None else 0.0

    def expire(self, now: float) -> None:
        """Answer those whose time is over, also if something is being done for them."""
        while self._deadlines and self._deadlines[0][0] <= now:
            self.drop(heappop(self._deadlines)[1], EXPIRED, "its time is over")

    def drop(self, seq: int, kind: str, text: str) -> None:
        """Answer an item, if it is not answered yet, without waiting for its result."""
        self._fail(Refusal(seq, "", self._stage, kind, text))

    def drop_all(self, kind: str, text: str) -> None:
        """Answer all items."""
        for seq in list(self._items):
            self.drop(seq, kind, text)

    def succeed(self, seq: int, record: bytes) -> None:
        """Answer with a record."""
        if self._leave(seq):
            self.done += 1
            self.answers.append(Answer(seq, record))

    def fail(self, seq: int, stage: str, kind: str, text: str) -> None:
        """Answer with a failure."""
        self._fail(Failure(seq, "", stage, kind, text))

    def _fail(self, failure: Failure) -> None:
        if self._leave(failure.index):
            self.failures[failure.kind] += 1
            self.answers.append(Answer(failure.index, failure))

    def _leave(self, seq: int) -> bool:
        entry = self._items.pop(seq, None)
        if entry is not None and entry.waiting:
            self._waiting[entry.realtime].remove(seq, entry.shapes)
        return entry is not None
