"""How batches pass through the workers: what a run over a job and a service have in common.

    items ─Write─▶ pre ─▶ input slot ─Run─▶ infer ─▶ output slot ─Read─▶ post ─▶ records

An item ends once, as a record or set aside with a fault. One that is set aside leaves a hole in its
batch. Where there is nothing but pre, what pre makes of an item is its record. Which item or batch
comes next, and what becomes of an outcome, is up to the subclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Mapping, Sequence

from gepipe.errors import BackendError, GepipeError, WorkerError
from gepipe.runtime.batches import Batch, Execution, Item, RowsTicket
from gepipe.runtime.events import (
    Command,
    Fault,
    Replied,
    Role,
    StartWorker,
    WorkerExited,
    WorkerId,
)
from gepipe.runtime.holdings import Holdings
from gepipe.runtime.memory import Shapes
from gepipe.runtime.roster import Roster
from gepipe.runtime.schedule import rows_per_ticket
from gepipe.runtime.slots import Slot, SlotTable
from gepipe.runtime.stagecount import StageCount

#: Worker deaths that an item survives.
DEATHS_SURVIVED = 1
#: Worker deaths on nobody knows what that the item survives which was next, or just done: without
#: an end to them, one whose operator closes the channel would come back for ever.
LOSSES_SURVIVED = 7
#: Deaths in a row, nothing finished in between, after which a role is given up. A pre or post
#: worker may meet many hostile items in a row; an infer worker is costly to replace.
DEATHS_IN_A_ROW: Mapping[Role, int] = {"pre": 200, "infer": 24, "post": 200}


class Passage(ABC):
    """Slots, workers, and what each of them holds.

    Attributes:
        counts: What each stage has done so far.
    """

    def __init__(  # noqa: PLR0913 - the fixed numbers of a run
        self,
        *,
        inputs: SlotTable,
        outputs: SlotTable,
        workers: Mapping[Role, int],
        names: Mapping[Role, str],
        in_flight: int,
        unstarted: Collection[WorkerId],
        lost: Collection[WorkerId],
    ) -> None:
        self.counts: dict[Role, StageCount] = {role: StageCount() for role in workers}
        self._names = names
        self._inputs, self._outputs = inputs, outputs
        self._roster = Roster(workers, unstarted, in_flight, lost)
        self._holdings = Holdings(self._roster)
        self._only_pre = "infer" not in workers

    def slots_used(self) -> tuple[int, int]:
        """Return how many input and output slots are in use."""
        return self._inputs.used, self._outputs.used

    # --- what differs -----------------------------------------------------------------------------

    @abstractmethod
    def _succeed(self, item: Item, record: bytes) -> None:
        """Take an item's record."""

    @abstractmethod
    def _fail(self, item: Item, stage: str, fault: Fault) -> None:
        """Take the fault for which an item was set aside."""

    @abstractmethod
    def _rows_of(self, role: Role, batch: Batch) -> deque[tuple[Batch, Item]]:
        """Return the queue to whose front rows go that are to be dealt once more."""

    @abstractmethod
    def _run_next(self, batch: Batch, executions: Sequence[Execution]) -> None:
        """Queue executions of a batch before all others."""

    @abstractmethod
    def _run_in_turn(self, execution: Execution) -> None:
        """Queue the execution of a batch that has become ready."""

    @abstractmethod
    def _read_in_turn(self, batch: Batch, items: Sequence[Item]) -> None:
        """Queue rows that were executed."""

    @abstractmethod
    def _bear(self, role: Role, out: list[Command], error: GepipeError) -> None:
        """Take notice of a misfortune; `error` is what to end with after too many in a row."""

    @abstractmethod
    def _prosper(self, worker: WorkerId, execution: Execution | None, busy_ns: int) -> None:
        """Take notice of a ticket that was finished; for infer, of its execution."""

    # --- dealing ----------------------------------------------------------------------------------

    def _deal_rows(self, role: Role, queue: deque[tuple[Batch, Item]], out: list[Command]) -> None:
        while queue and (worker := self._roster.vacancy(role)) is not None:
            self._deal_some(role, worker, queue, out)

    def _deal_some(
        self, role: Role, worker: WorkerId, queue: deque[tuple[Batch, Item]], out: list[Command]
    ) -> None:
        count = self._rows_per_ticket(role, len(queue))
        batch, item = queue.popleft()
        items = [item]
        # What was lost is dealt alone, or its neighbours would be lost with it.
        while len(items) < count and queue and queue[0][0] is batch and not item.losses:
            items.append(queue.popleft()[1])
        out.append(self._holdings.deal(worker, batch, items))

    def _rows_per_ticket(self, role: Role, waiting: int) -> int:
        return rows_per_ticket(waiting, self.counts[role].ns_per_item, self._roster.up(role))

    # --- stages done ------------------------------------------------------------------------------

    def _rows_written(self, batch: Batch, items: Sequence[Item]) -> None:
        batch.unwritten -= len(items)
        if batch.unwritten or not batch.whole:
            return
        if self._only_pre or len(batch.holes) == len(batch.items):
            self._inputs.move(batch.input_slot, Slot.FREE)
            return
        self._inputs.move(batch.input_slot, Slot.READY)
        batch.unrun = 1
        self._run_in_turn(Execution(batch, 0, len(batch.items)))

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
            item.deaths = item.losses = 0
        self._read_in_turn(batch, live)

    def _run_failed(self, execution: Execution, worker: WorkerId, fault: Fault) -> None:
        """Retry once whole, elsewhere if possible; then halve until only the culprit is left."""
        batch = execution.batch
        execution.deaths += 1
        execution.avoid = worker
        live = batch.live(execution.first, execution.last)
        if execution.deaths <= DEATHS_SURVIVED:
            self._run_next(batch, [execution])
        elif len(live) > 1 and fault.kind != "timeout":
            batch.unrun += 1
            self._run_next(batch, execution.halves())
        else:
            for item in live:
                self._set_aside(batch, item, "infer", fault)
            self._run_over(batch)

    def _rows_read(self, batch: Batch, count: int) -> None:
        batch.unread -= count
        if not batch.unread:
            self._outputs.move(batch.output_slot, Slot.FREE)

    # --- replies and deaths -----------------------------------------------------------------------

    def _replied(self, event: Replied, out: list[Command]) -> None:
        worker = event.worker
        ticket = self._holdings.answered(worker, event.ticket)
        if isinstance(ticket, Execution):
            self._executed(ticket, event, out)
            return
        role, batch = worker.role, ticket.batch
        self._prosper(worker, None, event.busy_ns)
        self.counts[role].add(len(ticket.items), event.busy_ns)
        passes_on = role == "pre" and not self._only_pre
        for item, result in zip(ticket.items, event.results, strict=True):
            if isinstance(result, Fault):
                self._set_aside(batch, item, role, result)
            elif passes_on:
                item.meta = result
                item.payload = b""
            else:
                self._succeed(item, result)
        if role == "pre":
            batch.shapes = batch.shapes or event.shapes
            self._rows_written(batch, ticket.items)
        else:
            self._rows_read(batch, len(ticket.items))

    def _executed(self, execution: Execution, event: Replied, out: list[Command]) -> None:
        self.counts["infer"].add(execution.last - execution.first, event.busy_ns)
        (result,) = event.results
        if isinstance(result, Fault):
            if result.fatal:  # what it still holds comes back with its end; it gets no more
                self._roster[event.worker].up = False
            self._run_failed(execution, event.worker, result)
            self._bear(
                "infer",
                out,
                BackendError(f"{self._names['infer']}: every execution fails: {result.text}"),
            )
            return
        self._prosper(event.worker, execution, event.busy_ns)
        if event.shapes is not None:
            self._made(execution.batch, event.shapes)
        self._run_over(execution.batch)

    def _made(self, batch: Batch, shapes: Shapes) -> None:
        """Note the row shapes of a batch's results, which lie in its slot one behind the other."""
        if batch.made not in (None, shapes):  # parts executed apart lie over one another now
            text = f"the model made rows of {batch.made} and of {shapes} in one batch"
            for item in batch.live(0, len(batch.items)):
                self._set_aside(batch, item, "infer", Fault("shape", f"{text}; use batch_size: 1"))
        batch.made = shapes

    def _exited(self, event: WorkerExited, out: list[Command]) -> None:
        worker, role = event.worker, event.worker.role
        held = self._holdings.taken_back(worker)
        self.counts[role].restarts += 1
        out.append(StartWorker(worker))
        fault = Fault(
            "timeout" if event.hung else "crash", f"{self._names[role]} worker {event.cause}"
        )
        if held and event.culprit < 0 and isinstance(held[0], RowsTicket):
            for item in held[0].items:
                item.losses += 1
        # Back to the front of the queue, the oldest first: what waits for it waits least.
        for ticket in reversed(held):
            if isinstance(ticket, Execution):
                if ticket.seq == event.culprit:
                    self._run_failed(ticket, worker, fault)
                else:
                    self._run_next(ticket.batch, [ticket])
            else:
                self._deal_again(ticket, event.culprit, role, fault)
        self._bear(
            role,
            out,
            WorkerError(
                f"{self._names[role]}: {DEATHS_IN_A_ROW[role]} workers in a row ended "
                f"without finishing anything, the last one {event.cause}"
            ),
        )

    def _deal_again(self, ticket: RowsTicket, culprit: int, role: Role, fault: Fault) -> None:
        queue = self._rows_of(role, ticket.batch)
        over: list[Item] = []
        for item in reversed(ticket.items):
            if item.seq == culprit:
                item.deaths += 1
            if item.deaths > DEATHS_SURVIVED:
                twice = Fault(fault.kind, f"{fault.text}, twice, while on this item")
                self._set_aside(ticket.batch, item, role, twice)
                over.append(item)
            elif item.losses > LOSSES_SURVIVED:
                text = f"{fault.text}, {item.losses} times while it held this item"
                self._set_aside(ticket.batch, item, role, Fault(fault.kind, text))
                over.append(item)
            else:
                queue.appendleft((ticket.batch, item))
        if over and role == "pre":
            self._rows_written(ticket.batch, over)
        elif over:
            self._rows_read(ticket.batch, len(over))

    def _set_aside(self, batch: Batch, item: Item, role: Role, fault: Fault) -> None:
        batch.holes.add(item.row)
        # What is no role is the name of a stage of an earlier run.
        blamed = fault.role or role
        stage = next((name for known, name in self._names.items() if known == blamed), blamed)
        self._fail(item, stage, fault)
