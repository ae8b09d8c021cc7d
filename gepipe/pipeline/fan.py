"""Where items fan out into parts for the next model, and come together again. Pure.

    leg before ── split items ─▶ Fan ── parts, in batches ─▶ leg behind
                                  ▲                              │
    finished items ◀──────────────┴────── outcomes of parts ◀────┘

An item is finished when all its parts have an outcome; one that has none is at once. A part that
fails is marked in its item and does not stop it. Where an item has exactly one part, the part's
failure is the item's own.
"""

from __future__ import annotations

import marshal
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeAlias, TypeVar

from gepipe.io.failures import Failure
from gepipe.io.source import Entry
from gepipe.pipeline.partbatches import PartBatches
from gepipe.runtime.events import Outcome
from gepipe.runtime.memory import Shapes

K = TypeVar("K")

#: Parts after which batches are closed within a group of items: an item of thousands of parts must
#: not wait for the rest of its group.
_CLOSED_AFTER: Final = 1024
#: Bytes of heads and facts, likewise: what is open must not fill the room that items may take.
_CLOSED_AFTER_NBYTES: Final = 16 << 20


#: What became of a part, as plain values: its record; why it failed (stage, kind, error); or what
#: the split of it left, with its own parts.
Result: TypeAlias = "bytes | tuple[str, str, str] | Gathered"
#: An item with its parts, as plain values, on its way to the join: what its split left, and for
#: each part its facts and its result.
Gathered: TypeAlias = "tuple[bytes, tuple[tuple[bytes, Result], ...]]"


@dataclass(slots=True, eq=False)
class Open(Generic[K]):
    """An item whose parts are on their way.

    Attributes:
        key: What the leg before knows it by.
        source: The item's display text.
        payload: What reads its picture.
        head: What its split left: its record, its meta and the key of its parts.
        facts: Facts of each part.
        shapes: Row shapes of each part.
        results: What became of each part.
        missing: Parts without an outcome.
        nbytes: What its head, its facts and its results take so far.
    """

    key: K
    source: str
    payload: Any
    head: bytes
    facts: Sequence[bytes]
    shapes: Sequence[Shapes]
    results: list[Any] = field(default_factory=list)
    missing: int = 0
    nbytes: int = 0

    def gathered(self) -> Gathered:
        """Return the item with its parts."""
        return self.head, tuple(zip(self.facts, self.results, strict=True))


@dataclass(slots=True, eq=False)
class Part(Generic[K]):
    """A part on its way: the item and its number in it."""

    item: Open[K]
    number: int

    @property
    def payload(self) -> tuple[Any, bytes]:
        """What reads the part's picture."""
        return self.item.payload, self.item.facts[self.number]


class Fan(Generic[K]):
    """The items between two legs.

    Attributes:
        items: Items that are not finished.
        parts: Parts that have no outcome yet.
        nbytes: What the items that are not finished take, with the results they have so far.
    """

    def __init__(
        self,
        batches: PartBatches[Part[K]],
        finish: Callable[[Open[K], Result], None],
        *,
        single: bool = False,
    ) -> None:
        """Begin without items.

        Args:
            batches: Where parts wait for the leg behind.
            finish: Called with each item that is finished, and what became of it.
            single: Whether an item has exactly one part.
        """
        self.items = self.parts = self.nbytes = 0
        self._batches = batches
        self._finish = finish
        self._single = single
        self._given: deque[Part[K]] = deque()  # in the order in which their outcomes will come
        self._added = self._over = 0
        self._since_closed = self._nbytes_since_closed = 0
        self._marks: deque[int] = deque()

    def add(self, key: K, source: str, payload: Any, split: bytes) -> None:
        """Take an item that the leg before has split; see `gepipe.pipeline.split`."""
        head, parts = marshal.loads(split)
        facts, shapes = zip(*parts, strict=True) if parts else ((), ())
        item = Open(key, source, payload, head, facts, shapes)
        self.items += 1
        item.nbytes = len(head) + sum(map(len, facts))
        self.nbytes += item.nbytes
        if not parts:
            self._end(item)
            return
        item.missing = len(parts)
        item.results = [None] * len(parts)
        self.parts += len(parts)
        self._added += len(parts)
        for number, its in enumerate(shapes):
            self._batches.add(Part(item, number), its)
        self._since_closed += len(parts)
        self._nbytes_since_closed += item.nbytes
        if self._since_closed >= _CLOSED_AFTER or self._nbytes_since_closed >= _CLOSED_AFTER_NBYTES:
            self._close()

    def close_group(self) -> None:
        """Take notice that a group of items is whole: no later one shares a batch with them."""
        self._close()
        self._marks.append(self._added)

    def group_is_over(self) -> bool:
        """Return whether one more group has left, all its parts included; once for each."""
        if not self._marks or self._over < self._marks[0]:
            return False
        self._marks.popleft()
        return True

    def take(self, count: int) -> tuple[list[Entry], bool]:
        """Return up to `count` parts for the leg behind, and whether their batch is whole."""
        parts, sealed = self._batches.take(count)
        self._given.extend(parts)
        return [_entry(part) for part in parts], sealed

    @property
    def waiting(self) -> bool:
        """Whether `take` would give something."""
        return bool(self._batches)

    @property
    def moving(self) -> bool:
        """Whether a part will have an outcome even if no further item comes."""
        return self._added - self._over > self._batches.held

    def next_part(self) -> Part[K]:
        """Return the part that the next outcome of the leg behind belongs to."""
        self._over += 1
        return self._given.popleft()

    def settle(self, part: Part[K], result: Result, nbytes: int = 0) -> None:
        """Take what became of a part, and how much memory that takes."""
        item = part.item
        item.nbytes += nbytes
        self.nbytes += nbytes
        item.results[part.number] = result
        item.missing -= 1
        self.parts -= 1
        if not item.missing:
            self._end(item)

    def _close(self) -> None:
        self._batches.close()
        self._since_closed = self._nbytes_since_closed = 0

    def _end(self, item: Open[K]) -> None:
        self.items -= 1
        self.nbytes -= item.nbytes
        if self._single and is_broken(item.results[0]):
            self._finish(item, item.results[0])
            return
        self._finish(item, item.gathered())


def result_of(outcome: Outcome) -> Result:
    """Return what an outcome of the last leg is for its part's item."""
    if isinstance(outcome, Failure):
        return outcome.stage, outcome.kind, outcome.error
    return outcome.payload


def is_broken(result: Result) -> bool:
    """Whether a part failed."""
    return type(result) is tuple and len(result) == 3


def _entry(part: Part[Any]) -> Entry:
    return Entry(part.item.source, part.payload, part.item.shapes[part.number])
