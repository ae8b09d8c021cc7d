"""The workers around one model that answer whoever asks, driven by a thread of their own.

    submit, cancel ──▶ inbox ──┐
    channels of the workers ───┼─▶ events ─▶ ServingState ─▶ commands ─┬─▶ tickets to workers
    sentinels of the workers ──┘                                      └─▶ answers to callers

The thread touches no tensor and decides nothing that `ServingState` can decide.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gepipe.errors import ClosedError, GepipeError, InternalError
from gepipe.io.failures import Failure
from gepipe.pipeline.crews import worker_environment
from gepipe.runtime.body import ModelInfo
from gepipe.runtime.events import Abort, Event, WorkerReady
from gepipe.runtime.links import Link, make_links
from gepipe.runtime.loop import Loop
from gepipe.runtime.options import RunOptions
from gepipe.runtime.workforce import Workforce
from gepipe.serving.answers import Answers
from gepipe.serving.events import Answer, Arrived, Cancelled, Drain, Held, WakeAt
from gepipe.serving.events import Event as ServingEvent
from gepipe.serving.shape import ServingShape
from gepipe.serving.snapshot import Executed, ServiceStatistics
from gepipe.serving.state import ServingState

if TYPE_CHECKING:
    from gepipe.runtime.events import Role
    from gepipe.runtime.memory import Shapes, SharedBuffer
    from gepipe.runtime.options import Crew, SlotPlan

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LegPlan:
    """What a leg is made of.

    Attributes:
        crews: The workers of each role; those of pre alone have no model.
        plan_slots: Lays out the slots once the model is open; without one, with the info of none.
        stage: Named where an item is refused.
        queue: Items of a class that may wait; more are refused.
        max_wait_s: How long a batch that is not full waits for more although a device is free.
        memory: What payloads point into, if they do.
    """

    crews: Mapping[Role, Crew]
    plan_slots: Callable[[ModelInfo], SlotPlan]
    stage: str
    queue: int
    max_wait_s: float = 0.0
    memory: SharedBuffer | None = None


class Leg:
    """The workers around one model, for as many callers as there are. Close it.

    Attributes:
        batch: Rows of a whole batch; 0 before `start` has returned.
    """

    def __init__(self, plan: LegPlan) -> None:
        """Describe the workers; none is started yet."""
        self.batch = 0
        self._plan = plan
        # There is no telling when the first rush comes: all workers are started at once.
        self._crews = {role: replace(crew, eager=sys.maxsize) for role, crew in plan.crews.items()}
        self._info: ModelInfo | None = None
        self._state: ServingState | None = None
        self._links: list[Link] = []
        self._inbox: deque[ServingEvent] = deque()
        self._answers = Answers(plan.stage)
        self._asleep = self._is_started = self._ended = False
        self._wake = self._last_moment = math.inf
        self._ready = threading.Event()
        self._closing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    # --- for the caller ---------------------------------------------------------------------------

    def start(self) -> ModelInfo:
        """Start the workers and wait until all are ready.

        Returns:
            What the model says of itself.

        Raises:
            GepipeError: A worker does not start, or the model does not open or fit.
        """
        with self._closing:
            if self._thread is not None:
                raise ClosedError("this service was started before; make a new one")
            if self._ended:
                raise ClosedError("this service is closed; make a new one")
            self._loop = Loop()
            self._workforce = Workforce(
                self._crews,
                RunOptions(environ=worker_environment()),
                self._loop.selector,
                self._set_up,
            )
            self._thread = threading.Thread(target=self._run, name="gepipe service", daemon=True)
            self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self.close(0.0)
            if isinstance(self._error, GepipeError):
                raise self._error
            raise InternalError(f"the service did not start: {self._error!r}") from self._error
        if self._info is None or not self._is_started:
            raise ClosedError("this service was closed while it started")
        return self._info

    def submit(
        self,
        payload: Any,
        *,
        realtime: bool = False,
        deadline: float = math.inf,
        shapes: Shapes = (),
        answer: Callable[[bytes | Failure], None],
    ) -> int:
        """Have an item processed. Safe in any thread; does not wait.

        Args:
            payload: What the pre workers' reader takes: a plain value.
            realtime: Whether it goes before those that are not.
            deadline: When the answer is not wanted any more, on the monotonic clock.
            shapes: Row shapes of its inputs, where the layout leaves them open and they are known.
            answer: Called exactly once, mostly in the leg's thread, with what post (without a
                model, pre) has made of it, or with the failure. Must return soon.

        Returns:
            What to cancel it by.
        """
        seq = self._answers.expect(answer)
        self._put(Arrived(seq, payload, realtime, deadline, shapes))
        if self._ended:
            self._refuse()
        return seq

    def cancel(self, token: int) -> None:
        """Say that an answer is not wanted any more; it is answered as `cancelled`, if not yet."""
        self._put(Cancelled(token))

    def hold(self, *, on: bool) -> None:
        """Have what waits stay where it is, until that is taken back."""
        self._put(Held(on))

    @property
    def is_open(self) -> bool:
        """Whether items are taken."""
        return self._is_started and not self._ended

    @property
    def why_ended(self) -> str:
        """Why nothing is taken any more, once that is so."""
        return f"the service has ended: {self._error}" if self._error else "the service has stopped"

    def statistics(self) -> ServiceStatistics:
        """Return a frozen snapshot. Safe in any thread."""
        state = self._state
        if state is None or not self._is_started:
            return ServiceStatistics()
        return ServiceStatistics(
            in_work=len(state.backlog) - state.backlog.waiting(True) - state.backlog.waiting(False),
            done=state.backlog.done,
            failures=dict(state.backlog.failures),
            restarts={role: count.restarts for role, count in state.counts.items()},
        )

    def executed(self) -> list[Executed]:
        """Return the executions done since the last call. For one thread."""
        recent = self._state.recent if self._state is not None else deque[Executed]()
        return [recent.popleft() for _ in range(len(recent))]

    def close(self, drain_s: float = 5.0) -> None:
        """Take nothing more, finish what is there, and stop the workers. Closing twice is harmless.

        Args:
            drain_s: Seconds after which what is not finished is answered as `unavailable`.
        """
        with self._closing:
            if self._thread is None:
                self._ended = True
                self._refuse()
                return
            self._last_moment = min(self._last_moment, time.monotonic() + drain_s)
            self._put(Drain())
            self._thread.join()

    # --- the thread -------------------------------------------------------------------------------

    def _put(self, event: ServingEvent) -> None:
        self._inbox.append(event)
        if self._asleep:  # it looks into the inbox once more after it has set this
            self._asleep = False
            self._loop.wake()

    def _run(self) -> None:
        try:
            self._loop.begin()
            self._workforce.start_eager()
            if "infer" not in self._crews:
                self._open(ModelInfo((), ()))
            while not self._over():
                self._step()
        except BaseException as error:
            self._error = error
            if self._ready.is_set():
                log.exception("the service has ended")
        finally:
            self._ended = True
            self._asleep = False
            self._workforce.close()
            for buffer, _ in self._links:
                buffer.close()
            self._loop.close()
            self._refuse()
            self._ready.set()

    def _over(self) -> bool:
        if self._error is not None:
            return True
        if self._last_moment == math.inf:
            return False
        idle = self._state is None or not (len(self._state.backlog) or self._inbox)
        return idle or time.monotonic() >= self._last_moment

    def _step(self) -> None:
        self._asleep = True
        # What arrives before the model is open waits until then.
        due = min(self._wake, self._last_moment)
        if self._inbox and self._state is not None:
            due = 0.0
        events: list[Any] = list(self._loop.events(self._workforce, due))
        self._asleep = False
        state = self._state
        if state is None:
            return
        while self._inbox:
            events.append(self._inbox.popleft())
        now = time.monotonic()
        if events or now >= self._wake:
            for command in state.handle(now, events):
                match command:
                    case Answer(seq, result):
                        self._answers.give(seq, result)
                    case WakeAt(moment):
                        self._wake = moment
                    case Abort(error):
                        log.error("the service has ended: %s", str(error))
                        self._error = error
                    case _:
                        self._workforce.obey(command)
        if not self._ready.is_set() and len(self._workforce.attached) == self._places:
            self._is_started = True
            self._ready.set()

    def _refuse(self) -> None:
        """Answer all who still wait: the service has ended."""
        self._inbox.clear()
        self._answers.refuse(self.why_ended)

    # --- the beginning ----------------------------------------------------------------------------

    @property
    def _places(self) -> int:
        return sum(len(crew.bodies) for crew in self._crews.values())

    def _set_up(self, info: tuple[Any, ...] | None) -> Iterator[Event]:
        if info is not None and self._info is None:
            self._open(ModelInfo.from_plain(info))
        if self._state is None:
            return
        for worker in list(self._workforce.waiting):
            self._workforce.attach(worker, *self._links)
            if worker.role == "pre" and self._plan.memory is not None:
                self._workforce.lend(worker, self._plan.memory)
            yield WorkerReady(worker)

    def _open(self, info: ModelInfo) -> None:
        plan = self._plan.plan_slots(info)
        if "infer" in self._crews:
            self._links = make_links(plan)
        self._info = info
        self.batch = plan.inputs.batch
        self._state = ServingState(
            ServingShape(
                batch=plan.inputs.batch,
                depth=plan.depth,
                workers={role: len(crew.bodies) for role, crew in self._crews.items()},
                names={role: crew.name for role, crew in self._crews.items()},
                in_flight=info.in_flight,
                queue=self._plan.queue,
                max_wait_s=self._plan.max_wait_s,
            )
        )
