"""What workers hold: each ticket has a number, and is remembered until its worker answers it."""

from __future__ import annotations

from collections import deque

from gepipe.errors import InternalError
from gepipe.runtime.batches import Batch, Execution, Item, RowsTicket, Ticket
from gepipe.runtime.events import Read, Run, WorkerId, Write
from gepipe.runtime.roster import Roster


class Holdings:
    """The tickets of all workers of a roster, each worker's oldest first."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._last = 0

    def deal(self, worker: WorkerId, batch: Batch, items: list[Item]) -> Write | Read:
        """Have a worker of pre or post work on rows of a batch."""
        self._last += 1
        self._roster[worker].held.append(RowsTicket(self._last, batch, items))
        rows, seqs = [i.row for i in items], [i.seq for i in items]
        if worker.role == "pre":
            payloads = [i.payload for i in items]
            return Write(worker, self._last, batch.input_slot, rows, seqs, payloads, batch.shapes)
        metas = [i.meta for i in items]
        return Read(worker, self._last, batch.output_slot, rows, seqs, metas, batch.made)

    def deal_run(self, worker: WorkerId, execution: Execution) -> Run:
        """Have a worker of infer execute rows of a batch."""
        batch = execution.batch
        self._last += 1
        execution.number = self._last
        self._roster[worker].held.append(execution)
        first, last = execution.first, execution.last
        holes = [row for row in sorted(batch.holes) if first <= row < last]
        return Run(
            worker, self._last, batch.input_slot, batch.output_slot,
            first, last, holes, execution.seq, batch.shapes,
        )  # fmt: skip

    def answered(self, worker: WorkerId, number: int) -> Ticket:
        """Return a worker's oldest ticket, which is over. Raises `InternalError` for another."""
        held = self._roster[worker].held
        if not held or held[0].number != number:
            raise InternalError(f"{worker} answered ticket {number}, which it does not hold")
        return held.popleft()

    def taken_back(self, worker: WorkerId) -> deque[Ticket]:
        """Return all that a worker holds, whose process has ended."""
        place = self._roster[worker]
        held, place.held, place.up = place.held, deque(), False
        return held
