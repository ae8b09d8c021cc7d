"""Decides what becomes of items that pass several models. Performs no I/O and reads no clock.

    callers ─Arrived─▶ leg 0 ─ parts ─▶ Fan ─▶ leg 1 ─▶ … ─▶ Fan ─▶ join ─Answer─▶ callers

Each leg has a state of its own, see `gepipe.serving.state`. Only the first one refuses what is too
much: it is held back while there is much behind it, so that its own queue grows. What it has let
through is never refused.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

from gepipe.io.failures import Failure
from gepipe.pipeline.fan import Fan, is_broken
from gepipe.pipeline.partbatches import LiveBatches
from gepipe.runtime.memory import Shapes
from gepipe.serving.chainevents import Command, Event, Hold, Submit, Told, Withdraw
from gepipe.serving.events import Answer, Arrived, Cancelled, Drain, Refusal
from gepipe.serving.kinds import CANCELLED, UNAVAILABLE
from gepipe.serving.payloads import nbytes_of

if TYPE_CHECKING:
    from gepipe.pipeline.fan import Open, Part, Result

#: Parts, and items, behind a leg that splits, from which on it is given nothing new.
PARTS: Final = 4096
#: Bytes of items behind the first leg, likewise: their inputs, and what is known of their parts.
NBYTES: Final = 256 << 20


@dataclass(slots=True, eq=False)
class _Entry:
    """An item that is not answered, or of which legs still hold something.

    Attributes:
        event: How it came.
        keys: What the legs hold of it.
        is_answered: Whether nobody waits for it.
        is_behind: Whether it has left the first leg.
        nbytes: What it takes behind the first leg, without what its fans count.
    """

    event: Arrived
    keys: set[int] = field(default_factory=set)
    is_answered: bool = False
    is_behind: bool = False
    nbytes: int = 0


class ChainState:
    """The state of a service of several models.

    Attributes:
        done: Items answered with a record.
        failures: Failures so far, by kind.
        behind: Items that have left the first leg and are not answered.
    """

    def __init__(self, singles: Sequence[bool], stage: str) -> None:
        """Begin without items.

        Args:
            singles: For each split, whether an item has exactly one part.
            stage: Named in failures that are no worker's.
        """
        self.done = self.behind = 0
        self.failures: Counter[str] = Counter()
        self._stage = stage
        self._join = len(singles) + 1
        self._items: dict[int, _Entry] = {}
        self._keys = itertools.count()
        self._ways: dict[int, tuple[int, _Entry, Part[Any] | None]] = {}
        self._fans: list[Fan[Any]] = [
            Fan(LiveBatches(sys.maxsize), self._finisher(number), single=single)
            for number, single in enumerate(singles)
        ]
        self._nbytes = 0
        self._held = [False] * len(singles)
        self._closed = False
        self._out: list[Command] = []

    def __len__(self) -> int:
        """How many are not answered."""
        return len(self._items)

    def wanted(self, key: int) -> int | None:
        """Return the number of the item that something submitted is of; None if it is answered."""
        entry = self._ways[key][1]
        return None if entry.is_answered else entry.event.seq

    def handle(self, event: Event) -> list[Command]:
        """Take what has happened and return what is to be done, in order."""
        match event:
            case Arrived():
                self._arrive(event)
            case Cancelled(seq):
                if (entry := self._items.get(seq)) is not None:
                    self._refuse(entry, CANCELLED, "the request was cancelled")
            case Drain():
                self._closed = True
            case Told():
                self._told(event)
        self._look()
        out, self._out = self._out, []
        return out

    # --- items ------------------------------------------------------------------------------------

    def _arrive(self, event: Arrived) -> None:
        entry = self._items[event.seq] = _Entry(event)
        if self._closed:
            self._refuse(entry, UNAVAILABLE, "the service is stopping")
        else:
            self._submit(0, entry, None, event.payload)

    def _submit(
        self, leg: int, entry: _Entry, part: Part[Any] | None, payload: Any, shapes: Shapes = ()
    ) -> None:
        key = next(self._keys)
        self._ways[key] = leg, entry, part
        entry.keys.add(key)
        event = entry.event
        self._out.append(
            Submit(leg, key, event.seq, payload, shapes, event.realtime, event.deadline)
        )

    def _refuse(self, entry: _Entry, kind: str, text: str) -> None:
        self._end(entry, Refusal(entry.event.seq, "", self._stage, kind, text))

    def _end(self, entry: _Entry, result: bytes | Failure) -> None:
        """Answer an item, if it is not answered yet, and let go of what the legs hold of it."""
        if entry.is_answered:
            return
        entry.is_answered = True
        if entry.is_behind:
            self.behind -= 1
            self._nbytes -= entry.nbytes
        del self._items[entry.event.seq]
        if isinstance(result, Failure):
            self.failures[result.kind] += 1
            result = replace(result, index=entry.event.seq)
        else:
            self.done += 1
        self._out += [Withdraw(key) for key in sorted(entry.keys)]
        self._out.append(Answer(entry.event.seq, result))

    # --- answers of the legs ----------------------------------------------------------------------

    def _told(self, event: Told) -> None:
        leg, entry, part = self._ways.pop(event.key)
        entry.keys.discard(event.key)
        result = event.result
        if isinstance(result, Refusal):  # no fault of the part: there will be no whole item
            self._end(entry, result)
        if part is not None:
            self._part_over(leg, entry, part, result)
        elif leg or isinstance(result, Failure):
            self._end(entry, result)
        elif not entry.is_answered:
            entry.is_behind, entry.nbytes = True, nbytes_of(entry.event.payload)
            entry.event = replace(entry.event, payload=b"")  # it lies elsewhere now
            self._nbytes += entry.nbytes
            self.behind += 1
            self._fans[0].add(entry, "", event.payload, result)
            self._give(0, entry)

    def _part_over(self, leg: int, entry: _Entry, part: Part[Any], result: bytes | Failure) -> None:
        fan = self._fans[leg - 1]
        if isinstance(result, Failure):
            fan.settle(part, (result.stage, result.kind, result.error))
        elif leg == self._join - 1:
            fan.settle(part, result, len(result))
        elif entry.is_answered:
            fan.settle(part, b"")  # it is not split any more
        else:
            self._fans[leg].add(part, "", part.payload, result)
            self._give(leg, entry)

    def _give(self, number: int, entry: _Entry) -> None:
        """Submit the parts that a fan was given."""
        fan = self._fans[number]
        while fan.waiting:
            for given in fan.take(sys.maxsize)[0]:
                self._submit(number + 1, entry, fan.next_part(), given.payload, given.shapes)

    def _finisher(self, number: int) -> Callable[[Open[Any], Result], None]:
        """Return what takes the items that a fan has finished."""

        def finish(item: Open[Any], result: Result) -> None:
            if number:
                self._fans[number - 1].settle(item.key, result, item.nbytes)
            else:
                self._gathered(item.key, result, item.nbytes)

        return finish

    def _gathered(self, entry: _Entry, result: Result, nbytes: int) -> None:
        if entry.is_answered:
            return
        if is_broken(result):
            why = cast("tuple[str, str, str]", result)
            self._end(entry, Failure(entry.event.seq, "", *why))
            return
        entry.nbytes += nbytes
        self._nbytes += nbytes
        self._submit(self._join, entry, None, (None, result))

    # --- how much there is ------------------------------------------------------------------------

    def _look(self) -> None:
        """Hold legs back, or have them go on. The last ones always do, so that it comes to an end.

        What is held back by bytes is the first leg alone: items beyond it end without further ones.
        """
        nbytes = self._nbytes + sum(fan.nbytes for fan in self._fans)
        for leg, held in enumerate(self._held):
            on = sum(fan.parts for fan in self._fans[leg:]) >= PARTS or (
                not leg and (nbytes >= NBYTES or self.behind >= PARTS)
            )
            if on is not held:
                self._held[leg] = on
                self._out.append(Hold(leg, on))
