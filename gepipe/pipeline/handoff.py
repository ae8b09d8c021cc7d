"""Passes portions from the thread that runs a pipeline to the one that consumes its results."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

from gepipe.errors import Interrupted

T = TypeVar("T")


class Handoff(Generic[T]):
    """A bounded queue whose two ends can let go of each other."""

    def __init__(self, limit: int) -> None:
        """Hold at most `limit` portions."""
        self._limit = limit
        self._portions: deque[T] = deque()
        self._error: BaseException | None = None
        self._ended = self._abandoned = False
        self._condition = threading.Condition()

    def put(self, portion: T) -> None:
        """Wait for room and add a portion.

        Raises:
            Interrupted: The consumer has let go.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._abandoned or len(self._portions) < self._limit)
            if self._abandoned:
                raise Interrupted("the results are no longer wanted")
            self._portions.append(portion)
            self._condition.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """Say that nothing follows, or why."""
        with self._condition:
            self._ended, self._error = True, error
            self._condition.notify_all()

    def get(self) -> T | None:
        """Wait for a portion; None at the end. Raises the error that the producer ended with."""
        with self._condition:
            self._condition.wait_for(lambda: self._portions or self._ended)
            if self._portions:
                portion = self._portions.popleft()
                self._condition.notify_all()
                return portion
            if self._error is not None:
                raise self._error
            return None

    def abandon(self) -> None:
        """Let go: the producer's next `put` raises."""
        with self._condition:
            self._abandoned = True
            self._portions.clear()
            self._condition.notify_all()
