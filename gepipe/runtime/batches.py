"""What is on its way: items in batches, and who holds which part of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gepipe.runtime.events import WorkerId
from gepipe.runtime.memory import Shapes


@dataclass(slots=True, eq=False)
class Item:
    """One input on its way through the stages.

    Attributes:
        seq: Place in the input order.
        row: Its row in the batch, also after others were set aside.
        source: What the user knows it by.
        payload: What a pre worker needs to read it: a plain value, mostly bytes.
        meta: What pre left for post, opaque here.
        deaths: Workers that died on it in its present stage.
        losses: Workers that died holding it in this stage, on nobody knows what.
    """

    seq: int
    row: int
    source: str
    payload: Any
    meta: bytes = b""
    deaths: int = 0
    losses: int = 0


@dataclass(slots=True, eq=False)
class Batch:
    """The items of one input slot, and later of one output slot.

    Attributes:
        input_slot: Slot that holds the rows until every execution is done.
        output_slot: Slot of the results; -1 before the first execution.
        items: By row.
        whole: Whether no further item will join.
        unwritten: Rows that pre has not finished.
        unrun: Executions that are not finished.
        unread: Rows that post has not finished.
        holes: Rows whose item was set aside.
        realtime: Whether it goes before others; a run has no such batches.
        shapes: Row shapes of the inputs; None for those of the layout, or not known yet.
        made: Row shapes of the outputs, likewise.
    """

    input_slot: int
    output_slot: int = -1
    items: list[Item] = field(default_factory=list)
    whole: bool = False
    unwritten: int = 0
    unrun: int = 0
    unread: int = 0
    holes: set[int] = field(default_factory=set)
    realtime: bool = False
    shapes: Shapes | None = None
    made: Shapes | None = None

    def live(self, first: int, last: int) -> list[Item]:
        """Return the items of the rows [first, last) that were not set aside."""
        return [item for item in self.items[first:last] if item.row not in self.holes]


@dataclass(slots=True, eq=False)
class RowsTicket:
    """Rows of one batch that a pre or post worker holds."""

    number: int
    batch: Batch
    items: list[Item]


@dataclass(slots=True, eq=False)
class Execution:
    """Rows [first, last) of a batch to be executed in one go.

    Attributes:
        number: The ticket's number while a worker holds it.
        deaths: Workers that died on it, or executions that failed.
        avoid: A worker that should not get it again if there is another one.
        waited_s: How long its first item has waited, where that is of interest.
    """

    batch: Batch
    first: int
    last: int
    deaths: int = 0
    number: int = -1
    avoid: WorkerId | None = None
    waited_s: float = 0.0

    @property
    def seq(self) -> int:
        """Sequence number of its first item, by which a worker names it."""
        return self.batch.items[self.first].seq

    def halves(self) -> list[Execution]:
        """Split by live items, so that each half has fewer; neither may fail once more whole."""
        live = self.batch.live(self.first, self.last)
        middle = live[len(live) // 2].row
        return [
            Execution(self.batch, self.first, middle, 1),
            Execution(self.batch, middle, self.last, 1),
        ]


Ticket: TypeAlias = RowsTicket | Execution
