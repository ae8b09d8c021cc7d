"""Puts outcomes back into input order."""

from __future__ import annotations

from typing import Generic, TypeVar

from gepipe.errors import InternalError

T = TypeVar("T")


class Reorderer(Generic[T]):
    """Releases outcomes in the order of their sequence numbers, without gaps.

    A failure is an outcome and keeps its place. How much is held is bounded upstream: an item is
    admitted only when there is a slot for it.
    """

    def __init__(self, first: int = 0) -> None:
        self._next = first
        self._held: dict[int, T] = {}

    @property
    def next_seq(self) -> int:
        """The sequence number that is to be released next."""
        return self._next

    def __len__(self) -> int:
        return len(self._held)

    def push(self, seq: int, outcome: T) -> list[T]:
        """Take the outcome of item `seq` and return all that can be released now, in order."""
        if seq < self._next or seq in self._held:
            raise InternalError(f"item {seq} completed twice; please report this")
        self._held[seq] = outcome
        ready: list[T] = []
        while self._next in self._held:
            ready.append(self._held.pop(self._next))
            self._next += 1
        return ready
