"""A batch on its way through a device, and each execution that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gepipe.engines.ge.buffers import BatchSet
from gepipe.engines.ge.gear import Gear

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(eq=False, slots=True)
class Batch:
    """What `submit` returns.

    Attributes:
        outputs: Where the results go, in the model's order.
        left: Executions that are not finished.
        error: Why the batch failed, once it has.
    """

    outputs: Sequence[NDArray[Any]]
    left: int = 0
    error: Exception | None = None


@dataclass(eq=False, slots=True)
class Run:
    """One execution.

    Attributes:
        batch: Which batch it is a part of.
        place: Its memory.
        gear: Its shape.
        first: Row of the batch that it begins with.
        count: Rows that hold items.
        loaded: Event that happens when its inputs are on the device.
        started_s: When it was handed to the compute stream.
        error: Why it failed, where that is known before it is finished.
    """

    batch: Batch
    place: BatchSet
    gear: Gear
    first: int
    count: int
    loaded: int = 0
    started_s: float = 0.0
    error: Exception | None = None
