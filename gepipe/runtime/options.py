"""What a run is told: its workers, its slots and its limits."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from gepipe.runtime.events import Role, WorkerId
from gepipe.runtime.feed import Feed
from gepipe.runtime.memory import SlotLayout


@dataclass(frozen=True, slots=True)
class Crew:
    """The workers of one role.

    Attributes:
        name: The stage's name.
        bodies: One pickled `Writer`, `Runner` or `Reader` a worker.
        timeout_s: Limit for one item (pre, post) or one execution (infer).
        eager: How many of the workers are started at the beginning; the others (of infer only)
            when there is more to do than these can take.
        ordered: Whether its one worker (of post only) gets the items strictly in input order.
    """

    name: str
    bodies: Sequence[bytes]
    timeout_s: float = math.inf
    eager: int = sys.maxsize
    ordered: bool = False


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
class Start:
    """What a run is given once the model is open.

    Attributes:
        feed: The items.
        first: Sequence number of the feed's first item, which decides its batch and row.
        fresh: Sequence number from which on outcomes count; those before were known already.
        max_failures: Failures that the run survives; None for any number.
    """

    feed: Feed
    first: int = 0
    fresh: int = 0
    max_failures: int | None = None


@dataclass(frozen=True, slots=True)
class RunShape:
    """The fixed numbers of a run.

    Attributes:
        batch: Rows in a slot.
        depth: Slots a link.
        workers: Workers of each role.
        names: Each role's stage name, for failures.
        in_flight: Batches that an infer worker works on at once.
        unstarted: Infer workers that are only started when there is enough to do.
        lost: Infer workers that an earlier run lost for good.
        first: Sequence number of the first item.
        fresh: Sequence number from which on outcomes count; those before were known already.
        max_failures: Failures that the run survives; None for any number.
        live: Whether a part-filled batch leaves after a while instead of waiting for the source.
        lends: Whether the source has memory, and learns when pre is done with an item.
        opens: Whether the layout of input rows is open, so that a row whose shape nobody knows
            before it is written is a batch of its own.
        ordered: Whether post gets the items strictly in input order.
    """

    batch: int
    depth: int
    workers: Mapping[Role, int]
    names: Mapping[Role, str]
    in_flight: int = 1
    unstarted: Collection[WorkerId] = ()
    lost: Collection[WorkerId] = ()
    first: int = 0
    fresh: int = 0
    max_failures: int | None = None
    live: bool = True
    lends: bool = False
    opens: bool = False
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Limits of time, and what workers need.

    Attributes:
        max_wait_s: How long a part-filled batch waits for a feed that is live.
        start_timeout_s: How long a worker may take to set itself up.
        grace_s: How long workers may take to stop before they are killed.
        environ: Environment variables that workers must have as they are now.
    """

    max_wait_s: float = 0.1
    start_timeout_s: float = 300.0
    grace_s: float = 1.5
    environ: Mapping[str, str] = field(default_factory=dict)
