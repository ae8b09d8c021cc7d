"""Decides what a service does next. Performs no I/O and reads no clock.

    callers ─Arrived─▶ waiting ─Write─▶ pre ─▶ batch ─Run─▶ infer ─▶ Read ─▶ post ─Answer─▶ callers
               real-time │ bulk            one open batch a class

Where there is nothing but pre, what pre makes of an item is its record. Rows of differing shapes
never share a batch: one closes when nothing of its shape waits any more, and others do.

Batches form late: one that is not full leaves when a device has nothing else to do. The device is
given its next execution only when the running one is nearly over, so that what is urgent overtakes
until then. Each item is answered exactly once, in no order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from gepipe.errors import GepipeError
from gepipe.runtime.batches import Batch, Execution, Item
from gepipe.runtime.events import (
    Abort,
    Fault,
    Replied,
    Role,
    WorkerExited,
    WorkerId,
    WorkerLost,
    WorkerReady,
)
from gepipe.runtime.events import Command as WorkerCommand
from gepipe.runtime.passage import Passage
from gepipe.runtime.schedule import InOrder
from gepipe.runtime.slots import Slot
from gepipe.serving.backlog import BOTH, Backlog
from gepipe.serving.classes import SharedSlots, Turns
from gepipe.serving.events import Arrived, Cancelled, Command, Drain, Event, Held, WakeAt
from gepipe.serving.kinds import CANCELLED, UNAVAILABLE
from gepipe.serving.pace import Pace
from gepipe.serving.shape import ServingShape
from gepipe.serving.snapshot import Executed

#: Executions that are remembered until somebody takes them.
_RECENT: Final = 4096


class ServingState(Passage):
    """The state of a service.

    Attributes:
        backlog: The items that are not answered yet.
        recent: The latest executions, for whoever takes them from here.
    """

    _inputs: SharedSlots
    _outputs: SharedSlots

    def __init__(self, shape: ServingShape) -> None:
        super().__init__(
            inputs=SharedSlots(shape.depth),
            outputs=SharedSlots(shape.depth),
            workers=shape.workers,
            names=shape.names,
            in_flight=shape.in_flight,
            unstarted=(),
            lost=shape.lost,
        )
        self.shape = shape
        self.backlog = Backlog(shape.queue, shape.names["pre"])
        self.recent: deque[Executed] = deque(maxlen=_RECENT)
        self._now = 0.0
        self._wake = math.inf
        self._open: dict[bool, Batch | None] = dict.fromkeys(BOTH)
        self._opened = dict.fromkeys(BOTH, 0.0)
        self._coming = 0  # batches that nothing more joins and whose rows are being written
        self._again: deque[tuple[Batch, Item]] = deque()
        self._to_run = {c: InOrder() for c in BOTH}
        self._to_read: dict[bool, deque[tuple[Batch, Item]]] = {c: deque() for c in BOTH}
        self._writes, self._runs, self._reads = Turns(), Turns(), Turns()
        self._pace = Pace(self._roster, shape.workers.get("infer", 0), shape.in_flight)
        self._held = False
        self._has_made_way = False  # an open batch was closed for one of another shape
        self._closed: str | None = None
        self._broken = False

    def handle(self, now: float, events: Iterable[Event] = ()) -> list[Command]:
        """Take what has happened and return what is to be done, in order.

        Args:
            now: The time, in seconds.
            events: What has happened; nothing where only time has passed.
        """
        self._now = now
        out: list[WorkerCommand] = []
        for event in events:
            self._learn(event, out)
        self.backlog.expire(now)
        if not self._broken:
            self._deal_runs(out)
            self._deal_writes(out)
            if self._has_made_way:
                self._has_made_way = False
                self._deal_runs(out)
            self._deal_reads(out)
        commands: list[Command] = [*self.backlog.answers, *out]  # type: ignore[list-item] # no Pull
        self.backlog.answers.clear()
        if (wake := self._next_wake()) != self._wake:
            self._wake = wake
            commands.append(WakeAt(wake))
        return commands

    def _learn(self, event: Event, out: list[WorkerCommand]) -> None:
        """Take one event."""
        match event:
            case Arrived():
                if self.backlog.waiting(event.realtime) >= self.shape.queue:
                    self._deal_writes(out)  # many may have come at once, to idle workers
                self.backlog.arrive(event, self._now, self._closed)
            case Cancelled(seq):
                self.backlog.drop(seq, CANCELLED, "the request was cancelled")
            case Drain():
                self._closed = self._closed or "the service is stopping"
            case Held(on):
                self._held = on
            case WorkerReady(worker):
                self._roster[worker].up = True
            case Replied(worker):
                self._replied(event, out)
                self._pace.begin(worker, self._now) if worker.role == "infer" else None
            case WorkerExited():
                self._exited(event, out)
            case WorkerLost(worker, error):
                self._roster[worker].lost = True
                if self._roster.all_lost(worker.role):
                    self._break(error, out)

    # --- answers ----------------------------------------------------------------------------------

    def _succeed(self, item: Item, record: bytes) -> None:
        self.backlog.succeed(item.seq, record)

    def _fail(self, item: Item, stage: str, fault: Fault) -> None:
        self.backlog.fail(item.seq, stage, fault.kind, fault.text)

    def _break(self, error: GepipeError, out: list[WorkerCommand]) -> None:
        self._broken = True
        self._closed = f"the service has ended: {error}"
        self.backlog.drop_all(UNAVAILABLE, self._closed)
        out.append(Abort(error))

    # --- pre --------------------------------------------------------------------------------------

    def _deal_writes(self, out: list[WorkerCommand]) -> None:
        self._deal_rows("pre", self._again, out)
        while (worker := self._roster.vacancy("pre")) is not None:
            bulk = self._can_write(realtime=False)
            chosen = self._writes.choose(realtime=self._can_write(realtime=True), bulk=bulk)
            if chosen is None:
                return
            self._writes.took(chosen, bulk=bulk)
            batch = self._batch_to_fill(chosen)
            shapes = batch.shapes or ()
            waiting = self.backlog.waiting_like(chosen, shapes)
            room = self.shape.batch - len(batch.items)
            count = min(self._rows_per_ticket("pre", waiting), room)
            items = self.backlog.take(chosen, shapes, count)
            for item in items:
                item.row = len(batch.items)
                batch.items.append(item)
            batch.unwritten += len(items)
            if len(items) == room:
                self._close(batch)
            out.append(self._holdings.deal(worker, batch, items))

    def _can_write(self, *, realtime: bool) -> bool:
        if self._held or not self.backlog.waiting(realtime):
            return False
        return self._can_grow(self._open[realtime]) or self._inputs.has_room(realtime)

    def _can_grow(self, batch: Batch | None) -> bool:
        """Whether something waits that can join an open batch."""
        if batch is None or self._held:
            return False
        return self.backlog.waiting_like(batch.realtime, batch.shapes or ()) > 0

    def _batch_to_fill(self, realtime: bool) -> Batch:
        """Return the open batch, or a new one for the shape of what has waited longest."""
        batch = self._open[realtime]
        if batch is not None and self._can_grow(batch):
            return batch
        if batch is not None:
            self._close(batch)
            self._has_made_way = True
        shapes = self.backlog.next_shapes(realtime)
        slot = self._inputs.acquire_for(realtime)
        batch = Batch(slot, realtime=realtime, shapes=shapes or None)
        self._open[realtime], self._opened[realtime] = batch, self._now
        return batch

    def _close(self, batch: Batch) -> None:
        """Let nothing more join a batch."""
        batch.whole = True
        self._open[batch.realtime] = None
        self._coming += 1
        if not batch.unwritten:
            self._rows_written(batch, ())

    def _rows_written(self, batch: Batch, items: Sequence[Item]) -> None:
        if batch.unwritten == len(items):
            if batch.whole:
                self._coming -= 1
                batch.holes.update(i.row for i in batch.items if i.seq not in self.backlog)
            elif len(batch.holes) == len(batch.items):
                self._inputs.move(batch.input_slot, Slot.FREE)
                self._open[batch.realtime] = None
        super()._rows_written(batch, items)

    def _rows_of(self, role: Role, batch: Batch) -> deque[tuple[Batch, Item]]:
        return self._again if role == "pre" else self._to_read[batch.realtime]

    # --- infer ------------------------------------------------------------------------------------

    def _deal_runs(self, out: list[WorkerCommand]) -> None:
        while (place := self._pace.pick(self._now)) is not None:
            idle = place[1]
            bulk = self._can_run(realtime=False, idle=idle)
            chosen = self._runs.choose(realtime=self._can_run(realtime=True, idle=idle), bulk=bulk)
            if chosen is None:
                break
            queue, batch = self._to_run[chosen], self._open[chosen]
            if not queue:
                assert batch is not None
                self._close(batch)
                continue  # it is in the queue now, unless nobody wants it any more
            place = self._pace.pick(self._now, queue.peek().avoid)
            if place is None:
                break
            execution = queue.pop()
            execution.waited_s = self.backlog.waited_s(execution.seq, self._now)
            if execution.batch.output_slot < 0:
                execution.batch.output_slot = self._outputs.acquire_for(chosen)
                self._inputs.move(execution.batch.input_slot, Slot.DRAINING)
            if not self._roster[place[0]].held:
                self._pace.begin(place[0], self._now)
            self._runs.took(chosen, bulk=bulk)
            out.append(self._holdings.deal_run(place[0], execution))
        self._close_early()

    def _can_run(self, *, realtime: bool, idle: bool) -> bool:
        queue, batch = self._to_run[realtime], self._open[realtime]
        if queue:
            batch = queue.peek().batch
            return batch.output_slot >= 0 or self._outputs.has_room(realtime)
        return (
            batch is not None
            and not batch.unwritten
            and self._has_waited(realtime)
            and (idle or not self._can_grow(batch))
            and self._outputs.has_room(realtime)
        )

    def _close_early(self) -> None:
        """Have a batch leave as soon as the rows that are being written are whole.

        Without this, a device would stand still while the workers, which always hold rows that
        are not written yet, fill the batch.
        """
        idle = self._pace.idle() - self._coming
        for realtime in BOTH:
            batch = self._open[realtime]
            if idle <= 0 or batch is None or not batch.unwritten:
                continue
            written = len(batch.items) - batch.unwritten - len(batch.holes)
            if written > 0 and self._has_waited(realtime) and self._outputs.has_room(realtime):
                self._close(batch)
                idle -= 1

    def _has_waited(self, realtime: bool) -> bool:
        return self._now >= self._opened[realtime] + self.shape.max_wait_s

    def _run_next(self, batch: Batch, executions: Sequence[Execution]) -> None:
        self._to_run[batch.realtime].push_back(executions)

    def _run_in_turn(self, execution: Execution) -> None:
        self._to_run[execution.batch.realtime].push(execution)

    def _run_over(self, batch: Batch) -> None:
        batch.holes.update(i.row for i in batch.items if i.seq not in self.backlog)
        super()._run_over(batch)

    # --- post -------------------------------------------------------------------------------------

    def _deal_reads(self, out: list[WorkerCommand]) -> None:
        if self._only_pre:
            return
        while (worker := self._roster.vacancy("post")) is not None:
            bulk = bool(self._to_read[False])
            chosen = self._reads.choose(realtime=bool(self._to_read[True]), bulk=bulk)
            if chosen is None:
                return
            self._reads.took(chosen, bulk=bulk)
            self._deal_some("post", worker, self._to_read[chosen], out)

    def _read_in_turn(self, batch: Batch, items: Sequence[Item]) -> None:
        self._to_read[batch.realtime].extend((batch, item) for item in items)

    # --- what is learnt, and when to look again ---------------------------------------------------

    def _prosper(self, worker: WorkerId, execution: Execution | None, busy_ns: int) -> None:
        if execution is not None:
            self._pace.times.add(execution.last - execution.first, busy_ns / 1e9)
            items = len(execution.batch.live(execution.first, execution.last))
            seconds = execution.waited_s, busy_ns / 1e9
            self.recent.append(Executed(worker.index, items, *seconds))

    def _bear(self, role: Role, out: list[WorkerCommand], error: GepipeError) -> None:
        """Go on: who sends hostile items must not end the service for the others."""

    def _next_wake(self) -> float:
        wake = self.backlog.next_deadline()
        for realtime in BOTH:
            batch = self._open[realtime]
            if batch is not None and not self._has_waited(realtime):
                wake = min(wake, self._opened[realtime] + self.shape.max_wait_s)
            elif self._to_run[realtime] or batch is not None:
                free = self._pace.next_free()
                if free > self._now:
                    wake = min(wake, free)
        return wake
