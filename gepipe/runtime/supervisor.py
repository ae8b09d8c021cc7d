"""Runs a pipeline: one thread, one selector, all state in `RunState`.

    feed, timers, stop request ──┐
    channels of the workers ─────┼─▶ events ─▶ RunState ─▶ commands ─┬─▶ tickets to workers
    sentinels of the workers ────┘                                   ├─▶ a process for a dead one
                                                                     └─▶ outcomes, in order

The supervisor touches no tensor and decides nothing that `RunState` can decide.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from selectors import EVENT_READ
from typing import TYPE_CHECKING, Any

from gepipe.errors import ClosedError, GepipeError, InternalError, Interrupted
from gepipe.runtime.body import ModelInfo
from gepipe.runtime.events import (
    Abort,
    Admitted,
    ArmWait,
    Command,
    Emit,
    Event,
    FeedReady,
    Outcome,
    Pull,
    Release,
    Role,
    WaitExpired,
    WorkerId,
    WorkerLost,
    WorkerReady,
)
from gepipe.runtime.links import Link, make_links
from gepipe.runtime.loop import Loop
from gepipe.runtime.options import RunShape
from gepipe.runtime.state import RunState
from gepipe.runtime.statistics import Statistics, look_at_stages
from gepipe.runtime.workforce import Workforce

if TYPE_CHECKING:
    from typing_extensions import Self

    from gepipe.runtime.feed import Feed
    from gepipe.runtime.options import Crew, RunOptions, SlotPlan, Start


class Supervisor:
    """Owns the workers and their shared memory, for one run after another.

    A run that ends with an error, or is stopped, leaves workers in the middle of something: the
    supervisor then closes itself.

    Attributes:
        info: What the model says of itself; None before it is open.
    """

    def __init__(
        self,
        crews: Mapping[Role, Crew],
        plan_slots: Callable[[ModelInfo], SlotPlan],
        options: RunOptions,
    ) -> None:
        """Describe the runs; nothing is started yet.

        Args:
            crews: The workers of each role; those of pre alone are a run without a model, and what
                they make of an item is its record.
            plan_slots: Called once the model is open; without a model, with the info of none.
            options: Limits.
        """
        self.info: ModelInfo | None = None
        self._pid = os.getpid()
        self._crews = crews
        self._plan_slots = plan_slots
        self._options = options
        self._loop = Loop()
        self._workforce = Workforce(crews, options, self._loop.selector, self._set_up)
        self._start: Callable[[int], Start] | None = None
        self._emit: Callable[[Sequence[Outcome]], None] | None = None
        self._plan: SlotPlan | None = None
        self._links: list[Link] = []
        self._state: RunState | None = None
        self._feed: Feed | None = None
        self._feed_watched = self._feed_dry = False
        self._wait: tuple[float, int] | None = None
        self._abort: GepipeError | None = None
        self._feed_error: BaseException | None = None
        self._stopping = self._closed = False
        self._began = self._elapsed_s = 0.0

    # --- for the caller ---------------------------------------------------------------------------

    def run(
        self,
        start: Callable[[int], Start],
        emit: Callable[[Sequence[Outcome]], None],
    ) -> Statistics:
        """Process a feed to its end.

        Args:
            start: Given the rows of a batch, returns the items; called once the model is open.
            emit: Takes outcomes in input order; called in this thread, and blocks the run while it
                blocks.

        Raises:
            Interrupted: `request_stop` was called.
            StageError: More items failed than the options allow.
            WorkerError: A stage lost too many workers, or one did not start.
            BackendError: The model does not open or fit, or the device failed.
        """
        if self._closed:
            raise ClosedError("this supervisor is closed")
        if self._pid != os.getpid():
            raise ClosedError("this supervisor belongs to another process; make a new one")
        self._start_run, self._emit = start, emit
        self._state = self._feed_error = None
        self._loop.begin()
        try:
            if self._plan is None:
                self._workforce.start_eager()
                if "infer" not in self._crews:
                    self.info = ModelInfo((), ())
                    self._begin(self._plan_slots(self.info))
            else:
                self._begin(self._plan)
            while not self._over():
                self._step()
            self._raise_for_stop()
            self._elapsed_s = time.monotonic() - self._began
        except BaseException:
            self._elapsed_s = time.monotonic() - self._began if self._began else 0.0
            self.close()
            raise
        return self.statistics()

    def request_stop(self) -> None:
        """Ask the run to stop soon. Safe in a signal handler and in any thread."""
        if self._pid != os.getpid():
            return  # the pipe is the parent's
        self._stopping = True
        self._loop.wake()

    def statistics(self) -> Statistics:
        """Return a frozen snapshot. Safe in any thread."""
        state = self._state
        elapsed_s = self._elapsed_s or (time.monotonic() - self._began if self._began else 0.0)
        return Statistics(
            total=self._feed.total if self._feed else None,
            done=state.done if state else 0,
            failed=state.failed if state else 0,
            elapsed_s=elapsed_s,
            stages=look_at_stages(self._crews, self._workforce.unstarted(), state, elapsed_s),
            slots_used=state.slots_used() if state else (0, 0),
            slots=(self._plan.depth,) if self._plan else (),
            slot_nbytes=sum(buffer.nbytes for buffer, _ in self._links),
        )

    def close(self) -> None:
        """Stop the workers and free their memory. Closing twice is harmless.

        In a child of fork() it does nothing: the workers are the parent's.
        """
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        self._workforce.close()
        for buffer, _ in self._links:
            buffer.close()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # --- the loop ---------------------------------------------------------------------------------

    def _over(self) -> bool:
        if self._abort is not None or self._stopping:
            return True
        return self._state is not None and self._state.finished

    def _raise_for_stop(self) -> None:
        if self._abort is not None:
            raise self._abort
        if self._stopping:
            raise Interrupted("stopped on request; what was written is an exact prefix")
        if self._feed_error is not None:
            raise self._feed_error

    def _step(self) -> None:
        for event in self._loop.events(self._workforce, self._wait[0] if self._wait else math.inf):
            self._handle(event)
        if self._wait is not None and time.monotonic() >= self._wait[0]:
            seq = self._wait[1]
            self._wait = None
            self._handle(WaitExpired(seq))

    def _handle(self, event: Event) -> None:
        if self._state is None:
            if isinstance(event, WorkerLost):
                return  # the run will know of it when it begins
            raise InternalError(f"{event} before the run began; please report this")
        commands = deque(self._state.handle(event))
        while commands and self._abort is None:
            reaction = self._perform(commands.popleft())
            if reaction is not None:
                commands.extend(self._state.handle(reaction))

    def _perform(self, command: Command) -> Event | None:
        match command:
            case Emit(outcomes):
                assert self._emit is not None
                assert self._feed is not None
                self._emit(outcomes)
                self._feed.settled(outcomes)
            case Release(seqs):
                assert self._feed is not None
                self._feed.used(seqs)
            case Pull(count):
                return self._pull(count)
            case ArmWait(seq):
                if self._wait is None or self._wait[1] != seq:
                    self._wait = (time.monotonic() + self._options.max_wait_s, seq)
            case Abort(error):
                self._abort = error
            case _:
                self._workforce.obey(command)
        return None

    def _pull(self, count: int) -> Admitted:
        assert self._feed is not None
        try:
            entries, ended, seal = self._feed.take(count)
        except Exception as error:  # noqa: BLE001 - raised once what is on its way has arrived
            self._feed_error = error
            return Admitted((), ended=True)
        dry = not entries or (len(entries) < count and not seal)
        self._feed_dry = dry and not ended
        if self._feed_dry and not self._feed_watched:
            self._loop.selector.register(self._feed.fileno(), EVENT_READ, self._fed)
            self._feed_watched = True
        return Admitted(entries, ended, seal)

    def _fed(self, _: int) -> Iterator[Event]:
        assert self._feed is not None
        self._feed_dry = False
        yield FeedReady()  # mostly, what there is is taken at once, and the feed is dry again
        if not self._feed_dry:
            self._loop.selector.unregister(self._feed.fileno())
            self._feed_watched = False

    # --- the beginning ----------------------------------------------------------------------------

    def _set_up(self, info: tuple[Any, ...] | None) -> Iterator[Event]:
        if info is not None and self.info is None:
            self.info = ModelInfo.from_plain(info)
        if self._start_run is not None and self._plan is None and self.info is not None:
            self._begin(self._plan_slots(self.info))
        if self._plan is None:
            return
        for worker in list(self._workforce.waiting):
            self._workforce.attach(worker, *self._links)
            self._lend(worker)
            yield WorkerReady(worker)

    def _lend(self, worker: WorkerId) -> None:
        if self._feed is not None and self._feed.memory is not None and worker.role != "infer":
            self._workforce.lend(worker, self._feed.memory)

    def _begin(self, plan: SlotPlan) -> None:
        if self._plan is None:
            self._plan = plan
            self._links += make_links(plan) if "infer" in self._crews else []
        if self._start_run is None:
            raise InternalError("a run began without a feed; please report this")
        start = self._start_run(plan.inputs.batch)
        self._feed = start.feed
        self._wait = None
        self._elapsed_s = 0.0
        self._state = RunState(
            RunShape(
                batch=plan.inputs.batch,
                depth=plan.depth,
                workers={role: len(crew.bodies) for role, crew in self._crews.items()},
                names={role: crew.name for role, crew in self._crews.items()},
                in_flight=self.info.in_flight if self.info else 1,
                unstarted=self._workforce.unstarted(),
                lost=self._workforce.lost,
                first=start.first,
                fresh=start.fresh,
                max_failures=start.max_failures,
                live=self._feed.live,
                lends=self._feed.memory is not None,
                opens=plan.inputs.is_open,
                ordered="post" in self._crews and self._crews["post"].ordered,
            )
        )
        self._began = time.monotonic()
        for worker in self._workforce.attached:  # those of the run before
            self._lend(worker)
            self._handle(WorkerReady(worker))
