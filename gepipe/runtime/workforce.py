"""The worker processes of a supervisor: started, given shared memory, watched, replaced.

Turns what channels, sentinels and time limits say into events. Knows nothing of batches.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector
from typing import Any, Final

from gepipe.errors import GepipeError, WorkerStartError
from gepipe.runtime.board import Board
from gepipe.runtime.channel import Channel, Message
from gepipe.runtime.events import (
    Event,
    Fault,
    Read,
    Replied,
    Role,
    Run,
    StartWorker,
    WorkerExited,
    WorkerId,
    WorkerLost,
    Write,
)
from gepipe.runtime.forkserver import wake_server
from gepipe.runtime.links import Link
from gepipe.runtime.memory import SharedBuffer
from gepipe.runtime.options import Crew, RunOptions
from gepipe.runtime.places import Places
from gepipe.runtime.process import SERVER_KILLED, WorkerProcess, set_up_error, stop
from gepipe.runtime.watch import Watch

log = logging.getLogger(__name__)

#: Deaths during set-up that a place survives. An exception during set-up is final at once.
_START_DEATHS: Final = 2
#: Deaths during set-up with the fork server, likewise: they are not the worker's fault.
_START_LOSSES: Final = 19


class Workforce:
    """All workers of all roles.

    Attributes:
        waiting: Workers that are set up and wait for the shared memory.
        attached: Workers that hold it and can be sent tickets.
    """

    def __init__(
        self,
        crews: Mapping[Role, Crew],
        options: RunOptions,
        selector: BaseSelector,
        set_up: Callable[[tuple[Any, ...] | None], Iterator[Event]],
    ) -> None:
        """Describe the workers; none is started yet.

        Args:
            crews: The workers of each role.
            options: Limits of time.
            selector: Where channels and sentinels are registered; data is a callable of the mask.
            set_up: Called when another worker waits, with what it said of its model (infer only).
        """
        self.waiting: list[WorkerId] = []
        self.attached: set[WorkerId] = set()
        self._crews = crews
        self._options = options
        self._selector = selector
        self._set_up = set_up
        self._places = Places(crews)
        self._board = Board.create(len(self._places.all))
        self._watch = Watch({role: crew.timeout_s for role, crew in crews.items()})
        self._processes: dict[WorkerId, WorkerProcess] = {}
        self._held: dict[WorkerId, deque[int]] = {worker: deque() for worker in self._places.all}
        self._hung: set[WorkerId] = set()
        self._broken: dict[WorkerId, str] = {}  # killed for what they sent, and what that was

    @property
    def next_look(self) -> float:
        """When `end_late_ones` should be called, on the monotonic clock."""
        return self._watch.next_look

    def looked(self, before: float, due: float, now: float) -> None:
        """Say when the supervisor looks at its workers; see `Watch.looked`."""
        self._watch.looked(before, due, now)

    @property
    def lost(self) -> set[WorkerId]:
        """Places that stay empty: what was put there after a death could not be set up."""
        return self._places.lost

    def start_eager(self) -> None:
        """Start a process in every place that is to have one from the beginning."""
        for worker in self._places.all:
            if not self._places.is_late(worker):
                self.start(worker)

    def unstarted(self) -> set[WorkerId]:
        """Return the places that have had no process yet."""
        return self._places.unused()

    def start(self, worker: WorkerId) -> None:
        """Start a process in a place that has none."""
        place = self._places.begin(worker)
        self._board.clear(place)
        body = self._crews[worker.role].bodies[worker.index]
        process = WorkerProcess(worker, place, body, self._options.environ)
        self._processes[worker] = process
        self._selector.register(process.channel, EVENT_READ, partial(self._ready, process))
        self._selector.register(
            process.process.sentinel, EVENT_READ, partial(self._exited, process)
        )
        self._watch.starting(worker, self._options.start_timeout_s)

    def attach(self, worker: WorkerId, *links: Link) -> None:
        """Hand a worker that is set up the memory of those links that it works on.

        Args:
            worker: Who.
            links: That of the inputs and that of the outputs; neither in a run without a model.
        """
        mine = {"pre": links[:1], "infer": links, "post": links[1:]}[worker.role]
        message = (
            "attach",
            self._board.buffer.nbytes,
            [(buffer.nbytes, layout.to_plain()) for buffer, layout in mine],
        )
        fds = [self._board.buffer.fd, *(buffer.fd for buffer, _ in mine)]
        self._processes[worker].channel.send_shared(message, fds)
        self.waiting.remove(worker)
        self.attached.add(worker)

    def lend(self, worker: WorkerId, memory: SharedBuffer) -> None:
        """Hand an attached worker that holds no ticket the memory that payloads point into."""
        message = ("memory", memory.nbytes)
        self._processes[worker].channel.send_shared(message, [memory.fd])

    def obey(self, command: Write | Run | Read | StartWorker) -> None:
        """Send a worker its ticket, or start one."""
        match command:
            case Write(worker, ticket, slot, rows, seqs, payloads, shapes):
                self.send(worker, (ticket, slot, rows, seqs, payloads, shapes))
            case Run(worker, ticket, source, target, first, last, holes, seq, shapes):
                self.send(worker, (ticket, source, target, first, last, holes, seq, shapes))
            case Read(worker, ticket, slot, rows, seqs, metas, made):
                self.send(worker, (ticket, slot, rows, seqs, metas, made))
            case StartWorker(worker):
                self.start(worker)

    def send(self, worker: WorkerId, ticket: Message) -> None:
        """Send a ticket; its limit of time begins."""
        process = self._processes[worker]
        process.channel.send(ticket)
        if process.channel.backlog:
            self._interest(process, EVENT_READ | EVENT_WRITE)
        self._held[worker].append(ticket[0])
        self._watch.dealt(worker)

    def end_late_ones(self, now: float) -> Iterator[Event]:
        """Kill the workers that exceed their limit; their sentinels tell the rest.

        Args:
            now: Until when all that the workers sent was read, on the monotonic clock.

        Raises:
            WorkerStartError: A worker did not become ready in time, and its place is needed.
        """
        if now < self._watch.next_look:
            return
        for worker in self._watch.late(now, self._in_work):
            if worker not in self.attached:
                error = WorkerStartError(
                    f"{self._crews[worker.role].name}: {worker} did not become ready within "
                    f"{self._options.start_timeout_s:g} s"
                )
                self._processes[worker].kill()
                yield from self._give_up(worker, error)
                continue
            self._hung.add(worker)
            self._processes[worker].kill()

    def close(self) -> None:
        """Stop all workers. Closing twice is harmless."""
        processes = list(self._processes.values())
        for process in processes:
            if process.worker not in self.attached and self._places.is_late(process.worker):
                process.kill()  # it never had anything to do, so nobody waits until it could
        self._processes.clear()
        stop(processes, grace_s=self._options.grace_s)
        self._board.close()

    def _in_work(self, worker: WorkerId) -> tuple[int, int]:
        return self._board.read(self._processes[worker].place)

    def _ready(self, process: WorkerProcess, mask: int) -> Iterator[Event]:
        """Turn what a worker's channel has into events."""
        channel = process.channel
        if mask & EVENT_WRITE:
            channel.flush()
            if not channel.backlog:
                self._interest(process, EVENT_READ)
        if not mask & EVENT_READ:
            return
        if process.worker in self._broken:
            return
        try:
            messages = channel.receive()
        except (ValueError, EOFError, TypeError):  # two processes wrote at once
            self._break(process, "sent what is no message")
            return
        for message in messages:
            yield from self._heard(process, message)
            if process.worker in self._broken:
                return
        if channel.ended:  # its sentinel tells the rest
            self._forget(channel)
            wake_server()

    def _heard(self, process: WorkerProcess, message: Message) -> Iterator[Event]:
        worker = process.worker
        match message:
            case ("ready", info):
                if worker in self.attached or worker in self.waiting:
                    self._break(process, "was set up twice")
                    return
                self._watch.idle(worker)
                self.waiting.append(worker)
                yield from self._set_up(info)
            case ("failed", kind, text, trace):
                error = set_up_error(kind, text, trace, self._crews[worker.role].name)
                yield from self._give_up(worker, error)
            case (ticket, busy_ns, results, *shapes) if len(shapes) <= 1:
                held = self._held[worker]
                if not held or held[0] != ticket:
                    self._break(process, f"answered ticket {ticket}, which it does not hold")
                    return
                held.popleft()
                self._watch.replied(worker)
                faults = [r if isinstance(r, bytes) else Fault(*r) for r in results]
                yield Replied(worker, ticket, busy_ns, faults, *shapes)
            case _:
                self._break(process, "sent what is no message")

    def _break(self, process: WorkerProcess, what: str) -> None:
        """Kill a worker that can be trusted no more; its sentinel tells the rest."""
        self._broken[process.worker] = f"{what} (does an operator fork, and its child return?)"
        process.kill()
        self._forget(process.channel)

    def _exited(self, process: WorkerProcess, _: int) -> Iterator[Event]:
        worker = process.worker
        yield from self._ready(process, EVENT_READ)  # what was sent before death still counts
        self._forget(process.channel)
        self._forget(process.process.sentinel)
        self._watch.idle(worker)
        self._held[worker].clear()
        culprit, _since = self._board.read(process.place)
        cause = process.reap()
        del self._processes[worker]
        if cause == SERVER_KILLED:  # and all workers with it, whatever they were doing
            culprit = -1
        if worker in self._broken:
            cause, culprit = self._broken.pop(worker), -1
            self._hung.discard(worker)
        name = self._crews[worker.role].name
        if worker not in self.attached:
            if worker in self.waiting:
                self.waiting.remove(worker)
            lost = cause == SERVER_KILLED
            deaths = self._places.died_in_set_up(worker, lost=lost)
            log.warning("%s: %s %s during set-up", name, worker, cause)
            if worker in self.lost:
                return
            if deaths > (_START_LOSSES if lost else _START_DEATHS):
                times = f"{deaths} times"
                error = WorkerStartError(f"{name}: {worker} {cause} during set-up, {times}")
                yield from self._give_up(worker, error)
                return
            self.start(worker)
            return
        self.attached.discard(worker)
        self._places.died_at_work(worker)
        hung = worker in self._hung
        self._hung.discard(worker)
        if hung:
            cause = f"exceeded its limit of {self._crews[worker.role].timeout_s:g} s"
        log.warning("%s: %s %s; replaced", name, worker, cause)
        yield WorkerExited(worker, cause, culprit, hung)

    def _give_up(self, worker: WorkerId, error: GepipeError) -> Iterator[Event]:
        """Leave a place empty whose device cannot be used; raise where the run needs the place."""
        left = self._places.give_up(worker, error)
        log.warning("%s; going on with %d infer worker%s", str(error), left, "s" * (left != 1))
        yield WorkerLost(worker, error)

    def _interest(self, process: WorkerProcess, mask: int) -> None:
        with suppress(KeyError, ValueError):  # its death was noticed in this very round
            self._selector.modify(process.channel, mask, partial(self._ready, process))

    def _forget(self, source: Channel | int) -> None:
        with suppress(KeyError, ValueError, OSError):  # a stale key of the same select() round
            self._selector.unregister(source)
