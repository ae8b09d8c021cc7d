"""Requests that wait for a place in a batch, real-time ones before the others."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence

from gepipe.errors import ItemError
from gepipe.serving.classes import Turns
from gepipe.serving.kinds import OVERLOADED
from gepipe.serving.merging import Query


class RequestQueue:
    """Requests of two classes that wait for a place in a batch. Any thread may use it."""

    def __init__(self, limit: int, max_wait_s: float = 0.0, gears: Sequence[int] = ()) -> None:
        """Hold at most `limit` requests.

        Args:
            limit: The bound; over it, requests are refused.
            max_wait_s: How long a part-filled batch of bulk waits for more.
            gears: Batch sizes that the model takes, ascending; empty means any.
        """
        self._limit, self._max_wait_s, self._gears = limit, max_wait_s, gears
        self._queues: dict[bool, deque[Query]] = {True: deque(), False: deque()}
        self._rows = 0
        self._turns = Turns()
        self._ended = False
        self._changed = threading.Condition()

    def put(self, query: Query, *, realtime: bool) -> None:
        """Have a request wait.

        Raises:
            ItemError: `overloaded`: too many wait already.
        """
        with self._changed:
            waiting = len(self._queues[True]) + len(self._queues[False])
            if waiting >= self._limit or self._ended:
                raise ItemError(OVERLOADED, f"{waiting} requests wait already; try again later")
            self._queues[realtime].append(query)
            self._rows += query.rows
            self._changed.notify()

    def take(self, capacity: int, *, merged: bool) -> list[Query]:
        """Wait for requests and return what forms the next batch; nothing at the end.

        Args:
            capacity: Rows that fit.
            merged: Whether several requests may share a batch.
        """
        with self._changed:
            self._changed.wait_for(lambda: any(self._queues.values()) or self._ended)
            if self._max_wait_s and merged and any(self._queues.values()) and not self._ended:
                oldest = min(queue[0].began for queue in self._queues.values() if queue)
                self._changed.wait_for(
                    lambda: self._rows >= capacity or self._queues[True] or self._ended,
                    max(0.0, oldest + self._max_wait_s - time.monotonic()),
                )
            return self._picked(capacity, merged=merged)

    def end(self) -> None:
        """Refuse further requests; those that wait are still handed out."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _picked(self, capacity: int, *, merged: bool) -> list[Query]:
        picked: list[Query] = []
        used = urgent_rows = 0
        urgent, bulk = self._queues[True], self._queues[False]
        while (which := self._turns.choose(realtime=bool(urgent), bulk=bool(bulk))) is not None:
            query = self._queues[which][0]
            # Bulk gets what real-time rows leave of their gear: more would make them slower.
            room = self._gear(urgent_rows) if urgent_rows and not which else capacity
            if picked and (not merged or used + query.rows > room):
                break
            self._turns.took(which, bulk=bool(bulk))
            picked.append(self._queues[which].popleft())
            used += query.rows
            urgent_rows += query.rows * which
        self._rows -= used
        return picked

    def _gear(self, rows: int) -> int:
        """Return the rows that are executed for so many."""
        return next((gear for gear in self._gears if gear >= rows), rows)
