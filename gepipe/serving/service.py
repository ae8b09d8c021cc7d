"""A pipeline that answers whoever asks: its workers, driven by a thread of its own.

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
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gepipe.errors import ClosedError, GepipeError, InternalError
from gepipe.io.failures import Failure
from gepipe.io.jsonl import encode_json
from gepipe.pipeline.conversion import prepare
from gepipe.pipeline.crews import make_crews, worker_environment
from gepipe.pipeline.plan import plan_slots, plan_start
from gepipe.pipeline.preload import PRELOAD
from gepipe.runtime.body import ModelInfo
from gepipe.runtime.events import Abort, Event, WorkerReady
from gepipe.runtime.forkserver import start_server
from gepipe.runtime.links import Link, make_links
from gepipe.runtime.loop import Loop
from gepipe.runtime.options import RunOptions
from gepipe.runtime.workforce import Workforce
from gepipe.serving.answers import Answers
from gepipe.serving.events import Answer, Arrived, Cancelled, Drain, WakeAt
from gepipe.serving.events import Event as ServingEvent
from gepipe.serving.payloads import PayloadReader, to_payload
from gepipe.serving.shape import ServingShape
from gepipe.serving.snapshot import Executed, ServiceStatistics
from gepipe.serving.state import ServingState
from gepipe.spec.profile import QUEUE, complete

if TYPE_CHECKING:
    from typing_extensions import Self

    from gepipe.runtime.events import Role
    from gepipe.runtime.options import Crew, SlotPlan
    from gepipe.spec.model import PipelineSpec

log = logging.getLogger(__name__)


class Service:
    """A pipeline with its workers, for as many callers as there are. Close it.

    Attributes:
        batch: Rows of a whole batch; 0 before `start` has returned.
        devices: The device of each infer worker; none before `start` has returned.
    """

    def __init__(self, spec: PipelineSpec) -> None:
        """Describe the service; nothing is started yet.

        Args:
            spec: The pipeline. Its source and sink are not used. Its profile says how many items of
                a class may wait; more are refused.
        """
        self.batch = 0
        self.devices: tuple[int, ...] = ()
        self._spec = spec
        self._info: ModelInfo | None = None
        self._crews: Mapping[Role, Crew] = {}
        self._plan_slots: Callable[[ModelInfo], SlotPlan] | None = None
        self._state: ServingState | None = None
        self._links: list[Link] = []
        self._inbox: deque[ServingEvent] = deque()
        self._answers = Answers(spec.infer.name)
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
            What the model says of itself; its notes begin with what was chosen.

        Raises:
            GepipeError: A worker does not start, or the model does not open or fit.
        """
        if self._thread is not None:
            raise ClosedError("this service was started before; make a new one")
        start_server(PRELOAD)
        spec = self._spec = prepare(self._spec)
        start = plan_start(spec)
        self.devices = tuple(options.device for options in start.engines)
        crews = make_crews(spec, start, PayloadReader(), encode_json)
        # There is no telling when the first rush comes: all workers are started now.
        self._crews = {role: replace(crew, eager=sys.maxsize) for role, crew in crews.items()}
        # One slot more for each device, so that each class can leave one to the other.
        wider = spec.model_copy(update={"depth": spec.depth + 1})
        self._plan_slots = lambda info: plan_slots(wider, start, info)
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
        return replace(self._info, notes=(*start.notes, *self._info.notes))

    def submit(
        self,
        payload: Any,
        *,
        realtime: bool = False,
        deadline_s: float | None = None,
        answer: Callable[[bytes | Failure], None],
    ) -> int:
        """Have an item processed. Safe in any thread; does not wait.

        Args:
            payload: What the first operator takes: bytes, or an array.
            realtime: Whether it goes before those that are not.
            deadline_s: Seconds after which the answer is not wanted any more.
            answer: Called exactly once, mostly in the service's thread, with the record as JSON or
                with the failure. Must return soon.

        Returns:
            What to cancel it by.
        """
        seq = self._answers.expect(answer)
        deadline = math.inf if deadline_s is None else time.monotonic() + deadline_s
        self._put(Arrived(seq, to_payload(payload), realtime, deadline))
        if self._ended:
            self._refuse()
        return seq

    def cancel(self, token: int) -> None:
        """Say that an answer is not wanted any more; it is answered as `cancelled`, if not yet."""
        self._put(Cancelled(token))

    @property
    def is_open(self) -> bool:
        """Whether items are taken."""
        return self._is_started and not self._ended

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

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
                        log.error("the service has ended: %s", error)
                        self._error = error
                    case _:
                        self._workforce.obey(command)
        if not self._ready.is_set() and len(self._workforce.attached) == self._places:
            self._is_started = True
            self._ready.set()

    def _refuse(self) -> None:
        """Answer all who still wait: the service has ended."""
        why = f"the service has ended: {self._error}" if self._error else "the service has stopped"
        self._inbox.clear()
        self._answers.refuse(why)

    # --- the beginning ----------------------------------------------------------------------------

    @property
    def _places(self) -> int:
        return sum(len(crew.bodies) for crew in self._crews.values())

    def _set_up(self, info: tuple[Any, ...] | None) -> Iterator[Event]:
        if info is not None and self._info is None:
            self._info = ModelInfo.from_plain(info)
            assert self._plan_slots is not None
            self._open(self._info, self._plan_slots(self._info))
        if self._state is None:
            return
        for worker in list(self._workforce.waiting):
            self._workforce.attach(worker, *self._links)
            yield WorkerReady(worker)

    def _open(self, info: ModelInfo, plan: SlotPlan) -> None:
        self._links = make_links(plan)
        self.batch = plan.inputs.batch
        self._state = ServingState(
            ServingShape(
                batch=plan.inputs.batch,
                depth=plan.depth,
                workers={role: len(crew.bodies) for role, crew in self._crews.items()},
                names={role: crew.name for role, crew in self._crews.items()},
                in_flight=info.in_flight,
                queue=complete(self._spec.profile).queue or QUEUE,
                max_wait_s=self._spec.max_wait or 0.0,
            )
        )
