"""What a run is told: its workers, its slots and its limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gepipe.runtime.memory import SlotLayout


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
