"""The feeds within a chain: what each leg, and the join, take their items from."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from gepipe.io.sink import Record
from gepipe.io.source import Entry
from gepipe.pipeline.payloadstore import PayloadStore
from gepipe.pipeline.tally import PartTally
from gepipe.runtime.events import Outcome
from gepipe.runtime.feed import Feed, Portion
from gepipe.runtime.limits import told

#: Bytes of items that the join is given at once: they are copied on their way to its workers.
_JOIN_NBYTES: Final = 32 << 20

if TYPE_CHECKING:
    from gepipe.pipeline.fan import Fan, Gathered, Result
    from gepipe.runtime.options import Start


class FirstFeed(Feed):
    """The pipeline's own feed, for the first leg.

    Keeps each item's payload, since its parts are cut out of the same picture.

    Attributes:
        error: What the source raised; raised at the end of the run.
    """

    def __init__(self, feed: Feed, first: int) -> None:
        self.total = feed.total
        self.live, self.memory = feed.live, feed.memory
        self.error: Exception | None = None
        self._feed = feed
        self._payloads: dict[int, Any] = {}
        self._store = PayloadStore()
        self._next = first

    def take(self, count: int) -> Portion:
        """Return the next items; see `Feed.take`."""
        try:
            portion = self._feed.take(count)
        except Exception as error:  # noqa: BLE001 - what is on its way goes to its end first
            self.error = error
            return Portion([], ended=True)
        self.total = self._feed.total  # of a source that learns it at its end
        for entry in portion.entries:
            self._payloads[self._next] = entry.payload
            self._next += 1
        return portion

    def payload(self, index: int) -> Any:
        """Return what stands for an item's payload from here on; once."""
        return self._store.put(index, self._payloads.pop(index))

    def settled(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing: what leaves the first leg has not left the chain."""

    def over(self, outcomes: Sequence[Outcome]) -> None:
        """Learn of items that have left the chain."""
        for outcome in outcomes:
            self._store.drop(outcome.index)
        self._feed.settled(outcomes)

    def used(self, seqs: Sequence[int]) -> None:
        """See `Feed.used`."""
        self._feed.used(seqs)

    def fileno(self) -> int:
        """See `Feed.fileno`."""
        return self._feed.fileno()

    def close(self) -> None:
        """Let go of what is kept; the feed itself is the caller's."""
        self._store.close()


class _Passage(Feed):
    """A feed that another thread fills: readable whenever it may have something to give."""

    def __init__(self, origin: Feed) -> None:
        self.total = None
        self.live, self.memory = origin.live, origin.memory
        self._ended = self._closed = False
        with told("cannot pass items on"):
            self._read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def end(self) -> None:
        """Say that nothing follows. The lock is held."""
        self._ended = True
        self.wake()

    def wake(self) -> None:
        """Have the supervisor look for items. The lock is held."""
        if not self._closed:
            with suppress(BlockingIOError):  # a full pipe is readable, which is all that matters
                os.write(self._write_fd, b"\0")

    def fileno(self) -> int:
        """See `Feed.fileno`."""
        return self._read_fd

    def close(self) -> None:
        """Close the pipe."""
        if not self._closed:
            self._closed = True
            os.close(self._read_fd)
            os.close(self._write_fd)

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._read_fd, 4096)


class PartFeed(_Passage):
    """The parts of a fan, for the leg behind it."""

    def __init__(self, fan: Fan[Any], lock: threading.Condition, origin: Feed) -> None:
        super().__init__(origin)
        self._fan = fan
        self._lock = lock

    def take(self, count: int) -> Portion:
        """Return parts of one batch; see `Feed.take`."""
        with self._lock:
            self._drain()
            entries, sealed = self._fan.take(count)
            if not entries and self._fan.waiting:  # only the batch before has been closed
                self.wake()
            return Portion(entries, self._ended and not self._fan.waiting, sealed)

    def end(self) -> None:
        """Say that no item follows; what is open leaves."""
        self._fan.close_group()
        super().end()


class JoinFeed(_Passage):
    """Items whose parts are gathered, and those that failed, in input order: for the join.

    Attributes:
        open: Items that were split, or failed, and have not been emitted yet.
        nbytes: What those of them take that have all their parts.
        tally: Parts of the items that were emitted with a result, but for those before `fresh`.
    """

    def __init__(
        self, origin: FirstFeed, start: Start, lock: threading.Condition, *, keep: bool
    ) -> None:
        """Begin without items.

        Args:
            origin: The first leg's feed.
            start: The run's items; those before `fresh` were emitted by an earlier one.
            lock: What all feeds of the chain share.
            keep: Whether the join reads the items' pictures.
        """
        super().__init__(origin)
        self.open = self.nbytes = 0
        self.tally = PartTally()
        self._keep = keep
        self._first = origin
        self._lock = lock
        self._next, self._fresh = start.first, start.fresh
        self._expected: dict[int, tuple[str, Any]] = {}
        self._ready: dict[int, tuple[Result | Gathered, int]] = {}
        self._given: dict[int, tuple[int, PartTally]] = {}  # item -> its bytes and parts
        self._given_nbytes = 0

    def expect(self, index: int, source: str, payload: Any) -> None:
        """Take notice of an item. The lock is held."""
        self._expected[index] = source, payload if self._keep else None
        self.open += 1

    def put(self, index: int, item: Result | Gathered, nbytes: int = 0) -> None:
        """Take an item with its parts, or why it failed. The lock is held."""
        self._ready[index] = item, nbytes
        self.nbytes += nbytes
        if index == self._next:
            self.wake()

    def take(self, count: int) -> Portion:
        """Return the items that are next; see `Feed.take`."""
        with self._lock:
            self._drain()
            entries: list[Entry] = []
            while len(entries) < count and self._next in self._ready:
                _, nbytes = self._ready[self._next]
                if self._given and self._given_nbytes + nbytes > _JOIN_NBYTES:
                    break  # until the join has made something of what it has
                source, payload = self._expected.pop(self._next)
                item, _ = self._ready.pop(self._next)
                self._given[self._next] = nbytes, PartTally.of(source, item)
                self._given_nbytes += nbytes
                entries.append(Entry(source, (payload, item)))
                self._next += 1
            # Sealed: what is there does not wait for what comes later.
            return Portion(entries, self._ended and not self._expected, seal=bool(entries))

    @property
    def moving(self) -> bool:
        """Whether an item will be emitted even if nothing further comes. The lock is held."""
        return bool(self._given) or self._next in self._ready

    def settled(self, outcomes: Sequence[Outcome]) -> None:
        """Tell the pipeline's feed what was emitted, and make room for further items."""
        self._first.over(outcomes)
        with self._lock:
            self.open -= len(outcomes)
            for outcome in outcomes:
                nbytes, tally = self._given.pop(outcome.index)
                if outcome.index >= self._fresh and type(outcome) is Record:
                    self.tally.add(tally)
                self._given_nbytes -= nbytes
                self.nbytes -= nbytes
            if self._next in self._ready:
                self.wake()
            self._lock.notify_all()
