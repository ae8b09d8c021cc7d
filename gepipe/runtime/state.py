"""Decides what happens next in a run. Performs no I/O and reads no clock.

    source ─Pull─▶ batch ─Write─▶ pre ─▶ input slot ─Run─▶ infer ─▶ output slot ─Read─▶ post
                                                                     sink ◀─Emit─ order ◀──┘

Events go in, commands come out. Each item ends exactly once, as a record or as a failure, and
outcomes leave in input order. An item's batch and row follow from its place in the input alone, so
that equal inputs give equal batches; an item that is set aside leaves a hole in its batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from gepipe.errors import BackendError, GepipeError, InternalError, StageError
from gepipe.io.failures import Failure
from gepipe.io.sink import Record
from gepipe.io.source import Entry
from gepipe.runtime.batches import Batch, Execution, Item
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
    Release,
    Replied,
    Role,
    StartWorker,
    WaitExpired,
    WorkerExited,
    WorkerId,
    WorkerLost,
    WorkerReady,
)
from gepipe.runtime.inputorder import InputOrder
from gepipe.runtime.options import RunShape
from gepipe.runtime.order import Reorderer
from gepipe.runtime.passage import DEATHS_IN_A_ROW, Passage
from gepipe.runtime.schedule import InOrder
from gepipe.runtime.slots import Slot, SlotTable


class RunState(Passage):
    """The state of a run."""

    def __init__(self, shape: RunShape) -> None:
        super().__init__(
            inputs=SlotTable(shape.depth),
            outputs=SlotTable(shape.depth),
            workers=shape.workers,
            names=shape.names,
            in_flight=shape.in_flight,
            unstarted=shape.unstarted,
            lost=shape.lost,
        )
        if shape.ordered and shape.workers["post"] != 1:
            raise InternalError(f"{shape.workers['post']} workers of post cannot keep the order")
        self.shape = shape
        self.done = 0
        self.failed = 0
        self._next_seq = shape.first
        self._window = (2 * shape.depth + 2) * shape.batch
        self._ended = self._dry = self._aborted = False
        self._asked = 0  # items that the source was asked for and has not given yet
        self._tells_shapes = not shape.opens
        self._filling: Batch | None = None
        self._to_write: deque[tuple[Batch, Item]] = deque()
        self._to_run = InOrder()
        self._in_order = InputOrder(shape.first) if shape.ordered else None
        self._to_read = self._in_order.to_read if self._in_order else deque()
        self._order: Reorderer[Outcome] = Reorderer(shape.first)
        self._released: list[Outcome] = []
        self._used: list[int] = []  # what pre is done with, and the source does not know yet
        self._fruitless: dict[Role, int] = dict.fromkeys(shape.workers, 0)
        self._last_fault = ""  # what the device says, while no execution succeeds

    @property
    def finished(self) -> bool:
        """Whether every item of the source has been emitted."""
        return self._ended and self._filling is None and self._order.next_seq == self._next_seq

    def queue_lengths(self) -> dict[Role, int]:
        """Return how many rows (for infer: executions) wait for each role."""
        return {"pre": len(self._to_write), "infer": len(self._to_run), "post": len(self._to_read)}

    def handle(self, event: Event) -> list[Command]:
        """Take an event and return what is to be done, in order."""
        if self._aborted:
            return []
        out: list[Command] = []
        match event:
            case Admitted():
                self._admit(event, out)
            case FeedReady():
                self._dry = False
            case WaitExpired(seq):
                batch = self._filling
                if batch is not None and batch.items and batch.items[0].seq == seq:
                    self._seal(batch)
            case WorkerReady(worker):
                self._roster[worker].up = True
            case Replied():
                self._replied(event, out)
            case WorkerExited():
                self._exited(event, out)
            case WorkerLost(worker, error):
                self._roster[worker].lost = True
                if self._roster.all_lost(worker.role):
                    self._release(out)
                    self._abort(error, out)
        self._release(out)
        if not self._aborted:
            self._fill(out)
            self._deal_rows("pre", self._to_write, out)
            self._deal_runs(out)
            self._enlist(out)
            self._deal_rows("post", self._to_read, out)
        return out

    # --- admission --------------------------------------------------------------------------------

    def _fill(self, out: list[Command]) -> None:
        if self._ended or self._dry or self._asked:
            return
        if self._filling is None:
            if self._next_seq - self._order.next_seq >= self._window:
                return  # failures need no slot: without this, they could pile up behind a slow item
            slot = self._inputs.acquire()
            if slot is None:
                return
            self._filling = Batch(slot)
            if self._in_order is not None:
                self._in_order.begin(self._filling)
        self._asked = self.shape.batch - len(self._filling.items) if self._tells_shapes else 1
        out.append(Pull(self._asked))

    def _admit(self, event: Admitted, out: list[Command]) -> None:
        batch, entries = self._filling, event.entries
        if batch is None or len(entries) > self._asked:
            raise InternalError(f"{len(entries)} items admitted without room for them")
        dry = len(entries) < self._asked and not (event.seal and entries)
        self._asked = 0
        self._ended = event.ended
        if self.shape.opens:
            self._settle_shapes(batch, entries)
        for source, payload, _ in entries:
            item = Item(self._next_seq, len(batch.items), source, payload)
            self._next_seq += 1
            batch.items.append(item)
            self._to_write.append((batch, item))
        batch.unwritten += len(entries)
        self._dry = dry and not event.ended
        count = len(batch.items)
        full = count == self.shape.batch or (count and not self._tells_shapes)
        if event.ended or full or (event.seal and count):
            self._seal(batch)
        elif count and dry and self.shape.live:
            out.append(ArmWait(batch.items[0].seq))

    def _settle_shapes(self, batch: Batch, entries: Sequence[Entry]) -> None:
        for row, entry in enumerate(entries, len(batch.items)):
            if not row:
                self._tells_shapes = bool(entry.shapes)
                batch.shapes = entry.shapes or None
            elif entry.shapes != batch.shapes:
                shapes = f"{batch.shapes} and {entry.shapes}"
                raise InternalError(f"rows of different shapes in one batch: {shapes}")

    def _seal(self, batch: Batch) -> None:
        batch.whole = True
        self._filling = None
        self._rows_written(batch, ())

    def _rows_written(self, batch: Batch, items: Sequence[Item]) -> None:
        if self.shape.lends:
            self._used += [item.seq for item in items]
        super()._rows_written(batch, items)
        if self._in_order is not None and batch.whole and not (batch.unwritten or batch.unrun):
            self._in_order.placed(batch)  # no item of it is left

    # --- infer ------------------------------------------------------------------------------------

    def _deal_runs(self, out: list[Command]) -> None:
        while self._to_run:
            execution = self._to_run.peek()
            worker = self._roster.vacancy("infer", execution.avoid)
            if worker is None:
                return
            batch = execution.batch
            if batch.output_slot < 0:
                free = self.shape.depth - self._outputs.used
                if self._in_order is not None and not self._in_order.may_place(batch, free):
                    return
                slot = self._outputs.acquire()
                if slot is None:
                    return
                batch.output_slot = slot
                if self._in_order is not None:
                    self._in_order.placed(batch)
                self._inputs.move(batch.input_slot, Slot.DRAINING)
            self._to_run.pop()
            out.append(self._holdings.deal_run(worker, execution))

    def _enlist(self, out: list[Command]) -> None:
        """Start one more infer worker while there is more to do than those at work can take."""
        if self._to_run and (worker := self._roster.next_start("infer")) is not None:
            self._roster[worker].started = True
            out.append(StartWorker(worker))

    def _run_next(self, batch: Batch, executions: Sequence[Execution]) -> None:  # noqa: ARG002
        self._to_run.push_back(executions)

    def _run_in_turn(self, execution: Execution) -> None:
        if self._in_order is None:
            self._to_run.push(execution)
        else:  # by place in the input, not by the moment at which it became ready
            self._to_run.push_back([execution])

    # --- pre and post -----------------------------------------------------------------------------

    def _rows_of(self, role: Role, batch: Batch) -> deque[tuple[Batch, Item]]:  # noqa: ARG002
        return self._to_write if role == "pre" else self._to_read

    def _read_in_turn(self, batch: Batch, items: Sequence[Item]) -> None:
        if self._in_order is None:
            self._to_read.extend((batch, item) for item in items)
        else:
            self._in_order.add(batch, items)

    # --- misfortunes ------------------------------------------------------------------------------

    def _prosper(self, worker: WorkerId, execution: Execution | None, busy_ns: int) -> None:  # noqa: ARG002
        self._fruitless[worker.role] = 0
        if worker.role == "infer":
            self._last_fault = ""

    def _bear(self, role: Role, out: list[Command], error: GepipeError) -> None:
        self._fruitless[role] += 1
        limit = DEATHS_IN_A_ROW[role]
        if isinstance(error, BackendError):
            limit = max(200, 4 * self.shape.batch + 16)  # two batches halved to single items
            self._last_fault = str(error)
        elif role == "infer" and self._last_fault:  # it ends because of what its device said
            error = BackendError(f"{error}; {self._last_fault}")
        if self._fruitless[role] >= limit:
            self._release(out)
            self._abort(error, out)

    # --- outcomes ---------------------------------------------------------------------------------

    def _succeed(self, item: Item, record: bytes) -> None:
        self._push(Record(item.seq, item.source, record))

    def _fail(self, item: Item, stage: str, fault: Fault) -> None:
        if self._in_order is not None:
            self._in_order.skip(item)
        self._push(Failure(item.seq, item.source, stage, fault.kind, fault.text))

    def _push(self, outcome: Outcome) -> None:
        self._released += self._order.push(outcome.index, outcome)

    def _release(self, out: list[Command]) -> None:
        if self._used:
            out.append(Release(self._used))
            self._used = []
        ready, self._released = self._released, []
        if not ready or self._aborted:
            return
        limit = self.shape.max_failures
        for position, outcome in enumerate(ready):
            if outcome.index < self.shape.fresh:
                continue
            if isinstance(outcome, Record):
                self.done += 1
                continue
            self.failed += 1
            if limit is not None and self.failed > limit:
                out.append(Emit(ready[: position + 1]))
                text = f"{outcome.source}: {outcome.stage}: {outcome.error}"
                bound = "no failure is" if limit == 0 else f"no more than {limit:,} failures are"
                why = f"{bound} allowed in this run (on_error, max_failures)"
                self._abort(StageError(f"{text}; stopped, since {why}"), out)
                return
        out.append(Emit(ready))

    def _abort(self, error: GepipeError, out: list[Command]) -> None:
        self._aborted = True
        out.append(Abort(error))
