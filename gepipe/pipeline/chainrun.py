"""One run of a chain of models: a thread for each, and what passes between them behind one lock.

    feed ─▶ leg 1 ─▶ Fan ─▶ leg 2 ─▶ … ─▶ leg n ─▶ join ─▶ outcomes, in input order
                      ▲       │ outcomes of parts     ▲
                      └───────┴── finished items ─────┘

What holds a leg back is that its `emit` waits while there is too much between it and the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from gepipe.errors import Interrupted
from gepipe.io.failures import Failure
from gepipe.pipeline.fan import Fan, result_of
from gepipe.pipeline.partbatches import LiveBatches, SealedBatches
from gepipe.pipeline.passages import FirstFeed, JoinFeed, PartFeed
from gepipe.pipeline.tally import PartTally
from gepipe.runtime.limits import told
from gepipe.runtime.options import Start

if TYPE_CHECKING:
    from gepipe.pipeline.fan import Open, Part, Result
    from gepipe.runtime.events import Outcome
    from gepipe.runtime.supervisor import Supervisor

#: Items after which batches of parts are closed at the latest; of it, the next multiple of the
#: first leg's batch. The first groups of a job are smaller, see `is_border`.
_GROUP: Final = 16
#: Groups of items that may be between the first leg and the end of the chain.
GROUPS: Final = 3
#: Where items come when they like, those are taken in that keep the legs busy, and no more: what
#: comes out is to be recent. So many batches of items, and of parts, may be on their way.
_LIVE_ITEMS: Final = 2
_LIVE_PARTS: Final = 3
#: Parts of one fan that may wait: then no further item is split.
_PARTS: Final = 4096
#: Bytes of items that are not emitted yet, above which what comes waits for what can go on.
_NBYTES: Final = 64 << 20
#: How often a thread that waits for room looks whether the run is to stop.
_GLANCE_S: Final = 0.1


class ChainRun:
    """One run of a chain.

    Attributes:
        stopping: Set to have it stop soon.
        group: Items after which all open batches of parts are closed; 0 before the models are open.
        batches: Rows of a batch of each model; empty before they are open.
        fans: The items between the legs.
    """

    def __init__(  # noqa: PLR0913 - the fixed parts of a run
        self,
        legs: Sequence[Supervisor],
        join: Supervisor,
        start: Callable[[int], Start],
        emit: Callable[[Sequence[Outcome]], None],
        *,
        singles: Sequence[bool],
        keep: bool,
    ) -> None:
        self.stopping = False
        self._singles, self._keep = singles, keep
        self.group = 0
        self.fans: list[Fan[Any]] = []
        self._legs, self._join = legs, join
        self._start, self._emit = start, emit
        self._lock = threading.Condition()
        self.batches: list[int] = []
        self._open: dict[int, int] = {}
        self._given: Start | None = None
        self._error: BaseException | None = None
        self._first: FirstFeed | None = None
        self._feeds: list[PartFeed] = []
        self._last: JoinFeed | None = None

    def work(self) -> None:
        """Do it."""
        threads = [
            threading.Thread(target=self._leg, args=(number,), name=f"gepipe leg {number + 1}")
            for number in range(len(self._legs))
        ]
        started: list[threading.Thread] = []
        try:
            with told("cannot run several models"):
                for thread in threads:
                    thread.start()
                    started.append(thread)
            self._join.run(self._begin_join, self._emit)
        except BaseException as error:  # noqa: BLE001 - the first that went wrong is raised below
            self._fail(error)
        finally:
            for thread in started:
                thread.join()
            for feed in (self._first, *self._feeds, self._last):
                if feed is not None:
                    feed.close()
        if self._error is None and self._first is not None:
            self._error = self._first.error
        if self._error is not None:
            raise self._error

    def _fail(self, error: BaseException) -> None:
        """Stop all, and keep why: what was first, but for what only follows from a stop."""
        with self._lock:
            if self._error is None or (
                isinstance(self._error, Interrupted) and not isinstance(error, Interrupted)
            ):
                self._error = error
            self.stopping = True
            self._lock.notify_all()
        for supervisor in (*self._legs, self._join):
            supervisor.request_stop()

    def _wait_for(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready`; the lock is held."""
        if not ready():  # let the others see what this thread has done since it took the lock
            self._lock.notify_all()
            for feed in self._feeds:
                feed.wake()
        while not ready():
            if self.stopping:
                raise Interrupted("stopped on request; what was written is an exact prefix")
            self._lock.wait(_GLANCE_S)

    # --- the beginning ----------------------------------------------------------------------------

    def _leg(self, number: int) -> None:
        try:
            self._legs[number].run(
                lambda batch: self._begin_leg(number, batch),
                lambda outcomes: self._emitted(number, outcomes),
            )
            with self._lock:
                if number < len(self._feeds):
                    self._feeds[number].end()
                elif self._last is not None:
                    self._last.end()
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            self._fail(error)

    def _begin_join(self, _: int) -> Start:
        """Ask for the items once all models are open; called in the caller's thread."""
        with self._lock:
            self._wait_for(lambda: len(self._open) == len(self._legs))
        self.batches = [self._open[number] for number in range(len(self._legs))]
        first_batch = self.batches[0]
        self.group = first_batch * -(-_GROUP // first_batch)
        given = self._start(self.group)
        with self._lock:
            self._first = FirstFeed(given.feed, given.first)
            self._last = JoinFeed(self._first, given, self._lock, keep=self._keep)
            for number in range(1, len(self._legs)):
                batches = LiveBatches if given.feed.live else SealedBatches
                fan: Fan[Any] = Fan(
                    batches(self.batches[number]),
                    self._finisher(number),
                    single=self._singles[number - 1],
                )
                self.fans.append(fan)
                self._feeds.append(PartFeed(fan, self._lock, given.feed))
            self._given = given
            self._lock.notify_all()
            return Start(self._last, given.first, given.fresh, given.max_failures)

    def _begin_leg(self, number: int, batch: int) -> Start:
        with self._lock:
            self._open[number] = batch
            self._lock.notify_all()
            self._wait_for(lambda: self._given is not None)
            assert self._given is not None
            if number:
                return Start(self._feeds[number - 1])
            assert self._first is not None
            return Start(self._first, self._given.first, self._given.first)

    # --- outcomes ---------------------------------------------------------------------------------

    def _emitted(self, number: int, outcomes: Sequence[Outcome]) -> None:
        """Take outcomes of a leg, in its thread."""
        with self._lock:
            for outcome in outcomes:
                if number:
                    self._part_over(number, outcome)
                else:
                    self._item_over(outcome)
            if number < len(self._feeds):
                self._feeds[number].wake()
            if number:  # once for all of them: who waits for room is woken for each call
                self._lock.notify_all()

    def _item_over(self, outcome: Outcome) -> None:
        assert self._first is not None
        assert self._last is not None
        last, fan, index = self._last, self.fans[0], outcome.index
        self._wait_for(
            lambda: self._has_room and fan.parts < _PARTS and not (self._is_full and self._moving)
        )
        payload = self._first.payload(index)
        last.expect(index, outcome.source, payload)
        if isinstance(outcome, Failure):
            last.put(index, result_of(outcome))
        else:
            fan.add(index, outcome.source, payload, outcome.payload)
        if is_border(index + 1, self.batches[0], self.group):
            self._close_group(0)

    def _part_over(self, number: int, outcome: Outcome) -> None:
        fan = self.fans[number - 1]
        part: Part[Any] = fan.next_part()
        last = self._last
        assert last is not None
        self._wait_for(lambda: not (self._is_full and last.moving))
        if number == len(self._legs) - 1 or isinstance(outcome, Failure):
            size = 0 if isinstance(outcome, Failure) else len(outcome.payload)
            fan.settle(part, result_of(outcome), size)
        else:
            behind = self.fans[number]
            self._wait_for(lambda: behind.parts < _PARTS)
            behind.add(part, part.item.source, part.payload, outcome.payload)
        self._pass_on(number - 1)

    @property
    def tally(self) -> PartTally:
        """Parts of the items that were emitted."""
        return self._last.tally if self._last is not None else PartTally()

    @property
    def _has_room(self) -> bool:
        """Whether one more item may be between the first leg and the end."""
        assert self._last is not None
        count = self._last.open
        if count >= GROUPS * self.group:
            return False
        return (
            not self._last.live
            or count < _LIVE_ITEMS * self.batches[0]
            or self.fans[0].parts < _LIVE_PARTS * self.batches[1]
        )

    @property
    def _is_full(self) -> bool:
        """Whether there are too many bytes between the first leg and the end."""
        assert self._last is not None
        return self._last.nbytes + sum(fan.nbytes for fan in self.fans) >= _NBYTES

    @property
    def _moving(self) -> bool:
        """Whether anything goes on without a further item: if not, one comes however full it is."""
        assert self._last is not None
        return self._last.moving or any(fan.moving for fan in self.fans)

    def _close_group(self, number: int) -> None:
        self.fans[number].close_group()
        self._feeds[number].wake()
        self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        """Close the groups behind a fan that have left it, before anything of the next follows."""
        while self.fans[number].group_is_over():
            if number + 1 < len(self.fans):
                self._close_group(number + 1)

    def _finisher(self, number: int) -> Callable[[Open[Any], Result], None]:
        """Return what takes the items that a fan has finished."""

        def finish(item: Open[Any], result: Result) -> None:
            if number == 1:
                assert self._last is not None
                self._last.put(item.key, result, item.nbytes)
            else:
                self.fans[number - 2].settle(item.key, result, item.nbytes)

        return finish


def is_border(count: int, batch: int, group: int) -> bool:
    """Whether all open batches of parts are closed behind the first `count` items of a job.

    At each multiple of the group. Within the first one, also behind one batch of items, two, four
    and so on: who watches sees the first results soon, and hardly a batch of parts leaves part-
    filled for it.

    Args:
        count: Items, counted from the beginning of the job.
        batch: Rows of a batch of the first leg.
        group: A multiple of it.
    """
    if count >= group:
        return count % group == 0
    batches, rest = divmod(count, batch)
    return not rest and batches.bit_count() == 1
