"""Decides what happens next in a run. Performs no I/O and reads no clock.

    source ─Pull─▶ batch ─Write─▶ pre ─▶ input slot ─Run─▶ infer ─▶ output slot ─Read─▶ post
                                                                     sink ◀─Emit─ order ◀──┘

Events go in, commands come out. Each item ends exactly once, as a record or as a failure, and
outcomes leave in input order. An item's batch and row follow from its place in the input alone, so
that equal inputs give equal batches; an item that is set aside leaves a hole in its batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from gepipe.errors import BackendError, GepipeError, InternalError, StageError, WorkerError
from gepipe.io.failures import Failure
from gepipe.io.sink import Record
from gepipe.io.source import Entry
from gepipe.runtime.batches import Batch, Execution, Item, RowsTicket
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
    Role,
    Run,
    StartWorker,
    WaitExpired,
    WorkerExited,
    WorkerId,
    WorkerLost,
    WorkerReady,
    Write,
)
from gepipe.runtime.options import RunShape
from gepipe.runtime.order import Reorderer
from gepipe.runtime.roster import Roster
from gepipe.runtime.schedule import InOrder, rows_per_ticket
from gepipe.runtime.slots import Slot, SlotTable
from gepipe.runtime.statistics import StageCount

#: Worker deaths that an item survives.
DEATHS_SURVIVED = 1
#: Deaths in a row, nothing finished in between, after which a role is given up. A pre or post
#: worker may meet many hostile items in a row; an infer worker is costly to replace.
DEATHS_IN_A_ROW: Mapping[Role, int] = {"pre": 200, "infer": 24, "post": 200}


class RunState:
    """The state of a run."""

    def __init__(self, shape: RunShape) -> None:
        self.shape = shape
        self.counts: dict[Role, StageCount] = {role: StageCount() for role in shape.workers}
        self.done = 0
        self.failed = 0
        self._next_seq = shape.first
        self._window = (2 * shape.depth + 2) * shape.batch
        self._ended = self._dry = self._pulling = self._aborted = False
        self._filling: Batch | None = None
        self._inputs, self._outputs = SlotTable(shape.depth), SlotTable(shape.depth)
        self._to_write: deque[tuple[Batch, Item]] = deque()
        self._to_run = InOrder()
        self._to_read: deque[tuple[Batch, Item]] = deque()
        self._roster = Roster(shape.workers, shape.unstarted, shape.in_flight, shape.lost)
        self._tickets = 0
        self._order: Reorderer[Outcome] = Reorderer(shape.first)
        self._released: list[Outcome] = []
        self._fruitless: dict[Role, int] = dict.fromkeys(shape.workers, 0)

    @property
    def finished(self) -> bool:
        """Whether every item of the source has been emitted."""
        return self._ended and self._filling is None and self._order.next_seq == self._next_seq

    def queue_lengths(self) -> dict[Role, int]:
        """Return how many rows (for infer: executions) wait for each role."""
        return {"pre": len(self._to_write), "infer": len(self._to_run), "post": len(self._to_read)}

    def slots_used(self) -> tuple[int, int]:
        """Return how many input and output slots are in use."""
        return self._inputs.used, self._outputs.used

    def handle(self, event: Event) -> list[Command]:
        """Take an event and return what is to be done, in order."""
        if self._aborted:
            return []
        out: list[Command] = []
        match event:
            case Admitted(entries, ended):
                self._admit(entries, out, ended=ended)
            case FeedReady():
                self._dry = False
            case WaitExpired(seq):
                batch = self._filling
                if batch is not None and batch.items and batch.items[0].seq == seq:
                    self._seal(batch)
            case WorkerReady(worker):
                self._roster[worker].up = True
            case Replied(worker, number, busy_ns, results):
                self._replied(worker, number, busy_ns, results, out)
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
        if self._ended or self._dry or self._pulling:
            return
        if self._filling is None:
            if self._next_seq - self._order.next_seq >= self._window:
                return  # failures need no slot: without this, they could pile up behind a slow item
            slot = self._inputs.acquire()
            if slot is None:
                return
            self._filling = Batch(slot)
        self._pulling = True
        out.append(Pull(self.shape.batch - len(self._filling.items)))

    def _admit(self, entries: Sequence[Entry], out: list[Command], *, ended: bool) -> None:
        batch = self._filling
        if batch is None or len(batch.items) + len(entries) > self.shape.batch:
            raise InternalError(f"{len(entries)} items admitted without room for them")
        self._pulling = False
        self._ended = ended
        for source, payload in entries:
            item = Item(self._next_seq, len(batch.items), source, payload)
            self._next_seq += 1
            batch.items.append(item)
            self._to_write.append((batch, item))
        batch.unwritten += len(entries)
        if ended or len(batch.items) == self.shape.batch:
            self._seal(batch)
        else:
            self._dry = True
            if batch.items:
                out.append(ArmWait(batch.items[0].seq))

    def _seal(self, batch: Batch) -> None:
        batch.whole = True
        self._filling = None
        self._rows_written(batch, 0)

    # --- pre --------------------------------------------------------------------------------------

    def _deal_rows(self, role: Role, queue: deque[tuple[Batch, Item]], out: list[Command]) -> None:
        while queue and (worker := self._roster.vacancy(role)) is not None:
            count = rows_per_ticket(
                len(queue), self.counts[role].ns_per_item, self._roster.up(role)
            )
            batch, item = queue.popleft()
            items = [item]
            while len(items) < count and queue and queue[0][0] is batch:
                items.append(queue.popleft()[1])
            self._tickets += 1
            self._roster[worker].held.append(RowsTicket(self._tickets, batch, items))
            rows, seqs = [i.row for i in items], [i.seq for i in items]
            if role == "pre":
                payloads = [i.payload for i in items]
                out.append(Write(worker, self._tickets, batch.input_slot, rows, seqs, payloads))
            else:
                metas = [i.meta for i in items]
                out.append(Read(worker, self._tickets, batch.output_slot, rows, seqs, metas))

    def _rows_written(self, batch: Batch, count: int) -> None:
        batch.unwritten -= count
        if batch.unwritten or not batch.whole:
            return
        if len(batch.holes) == len(batch.items):
            self._inputs.move(batch.input_slot, Slot.FREE)
            return
        self._inputs.move(batch.input_slot, Slot.READY)
        batch.unrun = 1
        self._to_run.push(Execution(batch, 0, len(batch.items)))

    # --- infer ------------------------------------------------------------------------------------

    def _deal_runs(self, out: list[Command]) -> None:
        while self._to_run:
            execution = self._to_run.peek()
            worker = self._roster.vacancy("infer", execution.avoid)
            if worker is None:
                return
            batch = execution.batch
            if batch.output_slot < 0:
                slot = self._outputs.acquire()
                if slot is None:
                    return
                batch.output_slot = slot
                self._inputs.move(batch.input_slot, Slot.DRAINING)
            self._to_run.pop()
            self._tickets += 1
            execution.number = self._tickets
            self._roster[worker].held.append(execution)
            first, last = execution.first, execution.last
            holes = [row for row in sorted(batch.holes) if first <= row < last]
            out.append(
                Run(
                    worker, self._tickets, batch.input_slot, batch.output_slot,
                    first, last, holes, execution.seq,
                )
            )  # fmt: skip

    def _enlist(self, out: list[Command]) -> None:
        """Start one more infer worker while there is more to do than those at work can take."""
        if self._to_run and (worker := self._roster.next_start("infer")) is not None:
            self._roster[worker].started = True
            out.append(StartWorker(worker))

    def _run_over(self, batch: Batch) -> None:
        batch.unrun -= 1
        if batch.unrun:
            return
        self._inputs.move(batch.input_slot, Slot.FREE)
        live = batch.live(0, len(batch.items))
        batch.unread = len(live)
        if not live:
            self._outputs.move(batch.output_slot, Slot.FREE)
            return
        self._outputs.move(batch.output_slot, Slot.READY)
        self._outputs.move(batch.output_slot, Slot.DRAINING)
        for item in live:
            item.deaths = 0
            self._to_read.append((batch, item))

    def _run_failed(self, execution: Execution, worker: WorkerId, fault: Fault) -> None:
        """Retry once whole, elsewhere if possible; then halve until only the culprit is left."""
        batch = execution.batch
        execution.deaths += 1
        execution.avoid = worker
        live = batch.live(execution.first, execution.last)
        if execution.deaths <= DEATHS_SURVIVED:
            self._to_run.push_back([execution])
        elif len(live) > 1 and fault.kind != "timeout":
            batch.unrun += 1
            self._to_run.push_back(execution.halves())
        else:
            for item in live:
                self._set_aside(batch, item, "infer", fault)
            self._run_over(batch)

    # --- replies and deaths -----------------------------------------------------------------------

    def _replied(
        self,
        worker: WorkerId,
        number: int,
        busy_ns: int,
        results: Sequence[bytes | Fault],
        out: list[Command],
    ) -> None:
        held = self._roster[worker].held
        if not held or held[0].number != number:
            raise InternalError(f"{worker} answered ticket {number}, which it does not hold")
        ticket = held.popleft()
        batch = ticket.batch
        if isinstance(ticket, Execution):
            self.counts["infer"].add(ticket.last - ticket.first, busy_ns)
            (result,) = results
            if isinstance(result, Fault):
                self._run_failed(ticket, worker, result)
                self._bear("infer", out, BackendError(f"every execution fails: {result.text}"))
            else:
                self._fruitless["infer"] = 0
                self._run_over(batch)
            return
        self._fruitless[worker.role] = 0
        self.counts[worker.role].add(len(ticket.items), busy_ns)
        for item, result in zip(ticket.items, results, strict=True):
            if isinstance(result, Fault):
                self._set_aside(batch, item, worker.role, result)
            elif worker.role == "pre":
                item.meta = result
                item.payload = b""
            else:
                self._push(Record(item.seq, item.source, result))
        if worker.role == "pre":
            self._rows_written(batch, len(ticket.items))
        else:
            self._rows_read(batch, len(ticket.items))

    def _rows_read(self, batch: Batch, count: int) -> None:
        batch.unread -= count
        if not batch.unread:
            self._outputs.move(batch.output_slot, Slot.FREE)

    def _exited(self, event: WorkerExited, out: list[Command]) -> None:
        worker, role = event.worker, event.worker.role
        place = self._roster[worker]
        held, place.held, place.up = place.held, deque(), False
        self.counts[role].restarts += 1
        out.append(StartWorker(worker))
        fault = Fault("timeout" if event.hung else "crash", f"{role} worker {event.cause}")
        # Back to the front of the queue, the oldest first: the reorder window stays small.
        for ticket in reversed(held):
            if isinstance(ticket, Execution):
                if ticket.seq == event.culprit:
                    self._run_failed(ticket, worker, fault)
                else:
                    self._to_run.push_back([ticket])
            else:
                self._deal_again(ticket, event.culprit, role, fault)
        self._bear(
            role,
            out,
            WorkerError(
                f"{self.shape.names[role]}: {DEATHS_IN_A_ROW[role]} workers in a row ended "
                f"without finishing anything, the last one {event.cause}"
            ),
        )

    def _deal_again(self, ticket: RowsTicket, culprit: int, role: Role, fault: Fault) -> None:
        queue = self._to_write if role == "pre" else self._to_read
        over = 0
        for item in reversed(ticket.items):
            if item.seq == culprit:
                item.deaths += 1
            if item.deaths > DEATHS_SURVIVED:
                twice = Fault(fault.kind, f"{fault.text}, twice, while on this item")
                self._set_aside(ticket.batch, item, role, twice)
                over += 1
            else:
                queue.appendleft((ticket.batch, item))
        if over and role == "pre":
            self._rows_written(ticket.batch, over)
        elif over:
            self._rows_read(ticket.batch, over)

    def _bear(self, role: Role, out: list[Command], error: GepipeError) -> None:
        """Count a misfortune; give up when too many came in a row."""
        self._fruitless[role] += 1
        limit = DEATHS_IN_A_ROW[role]
        if isinstance(error, BackendError):
            limit = max(200, 4 * self.shape.batch + 16)  # two batches halved to single items
        if self._fruitless[role] >= limit:
            self._release(out)
            self._abort(error, out)

    # --- outcomes ---------------------------------------------------------------------------------

    def _set_aside(self, batch: Batch, item: Item, role: Role, fault: Fault) -> None:
        batch.holes.add(item.row)
        stage = self.shape.names[fault.role or role]
        self._push(Failure(item.seq, item.source, stage, fault.kind, fault.text))

    def _push(self, outcome: Outcome) -> None:
        self._released += self._order.push(outcome.index, outcome)

    def _release(self, out: list[Command]) -> None:
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
