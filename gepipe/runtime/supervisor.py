"""Runs a pipeline: one thread, one selector, all state in `RunState`.

    feed, timers, stop request ───┐
    channels of the workers ──────┼─▶ events ─▶ RunState ─▶ commands ─┬─▶ tickets to workers
    sentinels of the workers ─────┘                                  ├─▶ a new process for a dead one
                                                                     └─▶ outcomes to whoever takes them

The supervisor touches no tensor and decides nothing that `RunState` can decide.
"""

from __future__ import annotations

import logging
import math
import os
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING, Any, Final

from gepipe import errors
from gepipe.errors import (
    ClosedError,
    GepipeError,
    InternalError,
    Interrupted,
    ItemError,
    WorkerStartError,
)
from gepipe.runtime.board import Board
from gepipe.runtime.channel import Channel, Message
from gepipe.runtime.events import (
    Abort,
    Admitted,
    ArmWait,
    Command,
    Emit,
    Event,
    Fault,
    FeedReady,
    Outcome,
    Pull,
    Read,
    Replied,
    Restart,
    Role,
    Run,
    WaitExpired,
    WorkerExited,
    WorkerId,
    WorkerReady,
    Write,
)
from gepipe.runtime.feed import Feed
from gepipe.runtime.memory import SharedBuffer, SlotLayout
from gepipe.runtime.process import WorkerProcess, stop
from gepipe.runtime.state import RunShape, RunState
from gepipe.runtime.statistics import StageCount, StageStatistics, Statistics
from gepipe.runtime.watch import Watch
from gepipe.runtime.worker import ModelInfo

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger(__name__)

#: Deaths during set-up that a place survives. An exception during set-up is final at once.
_START_DEATHS: Final = 2


@dataclass(frozen=True, slots=True)
class Crew:
    """The workers of one role.

    Attributes:
        name: The stage's name.
        bodies: One pickled `Writer`, `Runner` or `Reader` a worker.
        timeout_s: Limit for one item (pre, post) or one execution (infer).
    """

    name: str
    bodies: Sequence[bytes]
    timeout_s: float = math.inf


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """The numbers that depend on the model.

    Attributes:
        inputs: Layout of an input slot.
        outputs: Layout of an output slot, of as many rows.
        depth: Slots a link.
    """

    inputs: SlotLayout
    outputs: SlotLayout
    depth: int

    @property
    def nbytes(self) -> int:
        """Shared memory of all slots."""
        return self.depth * (self.inputs.slot_nbytes + self.outputs.slot_nbytes)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a run does beside moving items.

    Attributes:
        max_failures: Failures that it survives; None for any number.
        max_wait_s: How long a part-filled batch waits for a slow feed.
        start_timeout_s: How long a worker may take to set itself up.
        grace_s: How long workers may take to stop before they are killed.
        environ: Environment variables that workers must have as they are now.
    """

    max_failures: int | None = None
    max_wait_s: float = 0.1
    start_timeout_s: float = 300.0
    grace_s: float = 1.5
    environ: Mapping[str, str] = field(default_factory=dict)


class Supervisor:
    """Owns the workers and their shared memory, for one run after another.

    A run that ends with an error, or is stopped, leaves workers in the middle of something: the
    supervisor then closes itself.
    """

    def __init__(
        self,
        crews: Mapping[Role, Crew],
        plan_slots: Callable[[ModelInfo], SlotPlan],
        options: RunOptions,
    ) -> None:
        self._crews = crews
        self._plan_slots = plan_slots
        self._options = options
        # Infer first: opening a model takes longest.
        roles: list[Role] = ["infer", "pre", "post"]
        self._workers = [
            WorkerId(role, index) for role in roles for index in range(len(crews[role].bodies))
        ]
        self._processes: dict[WorkerId, WorkerProcess] = {}
        self._waiting: list[WorkerProcess] = []  # set up, but the slots are not planned yet
        self._attached: set[WorkerId] = set()
        self._start_deaths: dict[WorkerId, int] = dict.fromkeys(self._workers, 0)
        self._watch = Watch({role: crew.timeout_s for role, crew in crews.items()})
        self._hung: set[WorkerId] = set()
        self._wait: tuple[float, int] | None = None
        self._feed_watched = False
        self._board = Board.create(len(self._workers))
        self._buffers: list[SharedBuffer] = []
        self._plan: SlotPlan | None = None
        self._state: RunState | None = None
        self._feed: Feed | None = None
        self._emit: Callable[[Sequence[Outcome]], None] = lambda _: None
        self._open_feed: Callable[[int], tuple[Feed, int]] | None = None
        self._abort: GepipeError | None = None
        self._stopping = self._closed = False
        self._began = self._elapsed_s = 0.0
        self.info: ModelInfo | None = None
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    # --- for the caller ---------------------------------------------------------------------------

    def run(
        self,
        open_feed: Callable[[int], tuple[Feed, int]],
        emit: Callable[[Sequence[Outcome]], None],
    ) -> Statistics:
        """Process a feed to its end.

        Args:
            open_feed: Given the rows of a batch, returns the items and the sequence number of the
                first, which decides its batch and row; called once the model is open.
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
        self._open_feed, self._emit = open_feed, emit
        self._state = None
        try:
            if self._plan is None:
                self._start_all()
            else:
                self._begin(self._plan)
            while not self._over():
                for key, mask in self._selector.select(self._delay_s()):
                    for event in key.data(mask):
                        self._handle(event)
                for event in self._due():
                    self._handle(event)
            if self._abort is not None:
                raise self._abort
            if self._stopping:
                raise Interrupted("stopped on request; what was written is an exact prefix")
            self._elapsed_s = time.monotonic() - self._began
            if self._feed_watched:
                self._fed(0)
            return self.statistics()
        except BaseException:
            self._elapsed_s = time.monotonic() - self._began if self._began else 0.0
            self.close()
            raise

    def request_stop(self) -> None:
        """Ask the run to stop soon. Safe in a signal handler and in any thread."""
        self._stopping = True
        with suppress(OSError):
            os.write(self._wake_write, b"\0")

    def statistics(self) -> Statistics:
        """Return a frozen snapshot. Safe in any thread."""
        state = self._state
        elapsed_s = self._elapsed_s or (time.monotonic() - self._began if self._began else 0.0)
        waiting = state.queue_lengths() if state else {}
        stages: dict[str, StageStatistics] = {}
        for role, crew in self._crews.items():
            count = state.counts[role] if state else StageCount()
            workers, busy_s = len(crew.bodies), count.busy_ns / 1e9
            share = busy_s / (elapsed_s * workers) if elapsed_s else 0.0
            stages[role] = StageStatistics(
                name=crew.name,
                workers=workers,
                items=count.items,
                busy_s=busy_s,
                utilisation=min(1.0, share),
                waiting=waiting.get(role, 0),
                restarts=count.restarts,
            )
        return Statistics(
            total=self._feed.total if self._feed else None,
            done=state.done if state else 0,
            failed=state.failed if state else 0,
            elapsed_s=elapsed_s,
            stages=stages,
            slots_used=state.slots_used() if state else (0, 0),
            slots=self._plan.depth if self._plan else 0,
            slot_nbytes=self._plan.nbytes if self._plan else 0,
        )

    # --- the loop ---------------------------------------------------------------------------------

    def _over(self) -> bool:
        if self._abort is not None or self._stopping:
            return True
        return self._state is not None and self._state.finished

    def _handle(self, event: Event) -> None:
        if self._state is None:
            raise InternalError(f"{event} before the run began; please report this")
        commands = deque(self._state.handle(event))
        while commands and self._abort is None:
            reaction = self._perform(commands.popleft())
            if reaction is not None:
                commands.extend(self._state.handle(reaction))

    def _perform(self, command: Command) -> Event | None:
        match command:
            case Write(worker, ticket, slot, rows, seqs, payloads):
                self._send(worker, (ticket, slot, rows, seqs, payloads))
            case Run(worker, ticket, input_slot, output_slot, first, last, holes, seq):
                self._send(worker, (ticket, input_slot, output_slot, first, last, holes, seq))
            case Read(worker, ticket, slot, rows, seqs, metas):
                self._send(worker, (ticket, slot, rows, seqs, metas))
            case Emit(outcomes):
                self._emit(outcomes)
            case Pull(count):
                return self._pull(count)
            case ArmWait(seq):
                if self._wait is None or self._wait[1] != seq:
                    self._wait = (time.monotonic() + self._options.max_wait_s, seq)
            case Restart(worker):
                self._start(worker)
            case Abort(error):
                self._abort = error
        return None

    def _pull(self, count: int) -> Admitted:
        assert self._feed is not None
        entries, ended = self._feed.take(count)
        if not ended and len(entries) < count and not self._feed_watched:
            self._selector.register(self._feed.fileno(), EVENT_READ, self._fed)
            self._feed_watched = True
        return Admitted(entries, ended)

    def _fed(self, _: int) -> Iterable[Event]:
        assert self._feed is not None
        self._selector.unregister(self._feed.fileno())
        self._feed_watched = False
        return (FeedReady(),)

    def _woken(self, _: int) -> Iterable[Event]:
        with suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        return ()

    def _send(self, worker: WorkerId, message: Message) -> None:
        process = self._processes[worker]
        process.channel.send(message)
        if process.channel.backlog:
            self._interest(process, EVENT_READ | EVENT_WRITE)
        self._watch.dealt(worker)

    def _interest(self, process: WorkerProcess, mask: int) -> None:
        with suppress(KeyError, ValueError):  # its death was noticed in this very round
            self._selector.modify(process.channel, mask, partial(self._ready, process))

    # --- time -------------------------------------------------------------------------------------

    def _delay_s(self) -> float | None:
        due = min(self._watch.next_look, self._wait[0] if self._wait else math.inf)
        return None if due == math.inf else max(0.0, due - time.monotonic())

    def _due(self) -> Iterator[Event]:
        now = time.monotonic()
        if self._wait is not None and now >= self._wait[0]:
            seq = self._wait[1]
            self._wait = None
            yield WaitExpired(seq)
        if now < self._watch.next_look:
            return
        for worker in self._watch.late(now, self._begun):
            if worker not in self._attached:
                raise WorkerStartError(
                    f"{worker} did not become ready within {self._options.start_timeout_s:g} s"
                )
            self._hung.add(worker)
            self._processes[worker].kill()  # its sentinel tells the rest

    def _begun(self, worker: WorkerId) -> tuple[int, int]:
        return self._board.read(self._processes[worker].place)

    # --- workers ----------------------------------------------------------------------------------

    def _start_all(self) -> None:
        self._selector.register(self._wake_read, EVENT_READ, self._woken)
        for worker in self._workers:
            self._start(worker)

    def _start(self, worker: WorkerId) -> None:
        place = self._workers.index(worker)
        self._board.clear(place)
        body = self._crews[worker.role].bodies[worker.index]
        process = WorkerProcess(worker, place, body, self._options.environ)
        self._processes[worker] = process
        self._selector.register(process.channel, EVENT_READ, partial(self._ready, process))
        self._selector.register(
            process.process.sentinel, EVENT_READ, partial(self._exited, process)
        )
        self._watch.starting(worker, self._options.start_timeout_s)

    def _ready(self, process: WorkerProcess, mask: int) -> Iterator[Event]:
        """Turn what a worker's channel has into events."""
        channel = process.channel
        if mask & EVENT_WRITE:
            channel.flush()
            if not channel.backlog:
                self._interest(process, EVENT_READ)
        if not mask & EVENT_READ:
            return
        for message in channel.receive():
            match message:
                case ("ready", info):
                    yield from self._set_up(process, info)
                case ("failed", kind, text, trace):
                    raise self._start_error(process.worker, kind, text, trace)
                case (ticket, busy_ns, results):
                    self._watch.replied(process.worker)
                    yield Replied(
                        process.worker,
                        ticket,
                        busy_ns,
                        [r if isinstance(r, bytes) else Fault(*r) for r in results],
                    )
        if channel.ended:  # its sentinel tells the rest
            self._forget(channel)

    def _set_up(self, process: WorkerProcess, info: tuple[Any, ...] | None) -> Iterator[Event]:
        self._watch.idle(process.worker)
        self._waiting.append(process)
        if info is not None and self._state is None:
            self.info = ModelInfo.from_plain(info)
            self._begin(self._plan_slots(self.info))
        if self._state is None:
            return
        for waiting in self._waiting:
            self._attach(waiting)
            yield WorkerReady(waiting.worker)
        self._waiting.clear()

    def _begin(self, plan: SlotPlan) -> None:
        if self._plan is None:
            self._plan = plan
            for layout in (plan.inputs, plan.outputs):
                self._buffers.append(SharedBuffer.create(plan.depth * layout.slot_nbytes))
        assert self._open_feed is not None
        self._feed, first = self._open_feed(plan.inputs.batch)
        self._wait = None
        self._elapsed_s = 0.0
        self._state = RunState(
            RunShape(
                batch=plan.inputs.batch,
                depth=plan.depth,
                workers={role: len(crew.bodies) for role, crew in self._crews.items()},
                names={role: crew.name for role, crew in self._crews.items()},
                first=first,
                max_failures=self._options.max_failures,
            )
        )
        self._began = time.monotonic()
        for worker in self._attached:  # those of the run before
            self._handle(WorkerReady(worker))

    def _attach(self, process: WorkerProcess) -> None:
        assert self._plan is not None
        links = list(zip(self._buffers, (self._plan.inputs, self._plan.outputs), strict=True))
        needed = {"pre": links[:1], "infer": links, "post": links[1:]}[process.worker.role]
        message = (
            "attach",
            self._board.buffer.nbytes,
            [(buffer.nbytes, layout.to_plain()) for buffer, layout in needed],
        )
        fds = [self._board.buffer.fd, *(buffer.fd for buffer, _ in needed)]
        process.channel.send_shared(message, fds)
        self._attached.add(process.worker)

    def _exited(self, process: WorkerProcess, _: int) -> Iterator[Event]:
        worker = process.worker
        yield from self._ready(process, EVENT_READ)  # what was sent before death still counts
        self._forget(process.channel)
        self._forget(process.process.sentinel)
        self._watch.idle(worker)
        culprit, _begun = self._board.read(process.place)
        cause = process.reap()
        del self._processes[worker]
        if process in self._waiting:
            self._waiting.remove(process)
        if worker not in self._attached:
            self._start_deaths[worker] += 1
            log.warning("%s %s during set-up", worker, cause)
            if self._start_deaths[worker] > _START_DEATHS:
                raise WorkerStartError(
                    f"{self._crews[worker.role].name}: {worker} {cause} during set-up, "
                    f"{self._start_deaths[worker]} times"
                )
            self._start(worker)
            return
        self._attached.discard(worker)
        self._start_deaths[worker] = 0
        hung = worker in self._hung
        self._hung.discard(worker)
        if hung:
            cause = f"exceeded its limit of {self._crews[worker.role].timeout_s:g} s"
        log.warning("%s %s; replaced", worker, cause)
        yield WorkerExited(worker, cause, culprit, hung)

    def _start_error(self, worker: WorkerId, kind: str, text: str, trace: str) -> GepipeError:
        name = self._crews[worker.role].name
        log.debug("traceback of %s:\n%s", worker, trace)
        known = getattr(errors, kind, None)
        if isinstance(known, type) and issubclass(known, GepipeError) and known is not ItemError:
            return known(f"{name}: {text}")
        return WorkerStartError(f"{name}: set-up failed: {text}\n{trace.rstrip()}")

    def _forget(self, source: Channel | int) -> None:
        with suppress(KeyError, ValueError, OSError):  # a stale key of the same select() round
            self._selector.unregister(source)

    def close(self) -> None:
        """Stop the workers and free their memory. Closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        stop(list(self._processes.values()), grace_s=self._options.grace_s)
        self._processes.clear()
        self._selector.close()
        for buffer in self._buffers:
            buffer.close()
        self._board.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
        self._wake_write = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
