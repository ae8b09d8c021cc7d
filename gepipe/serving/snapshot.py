"""A service at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Executed(NamedTuple):
    """An execution that was done.

    Attributes:
        items: Items in it.
        waited_s: Seconds from the arrival of the first of them to its hand-over to the device.
        busy_s: Seconds in which the device was executing.
    """

    items: int
    waited_s: float
    busy_s: float


@dataclass(frozen=True, slots=True)
class ServiceStatistics:
    """Numbers about a service since it became ready.

    Attributes:
        elapsed_s: Seconds since then.
        waiting: Items that no worker has been given yet, by class: `realtime`, `bulk`.
        in_work: Items that were given to a worker and are not answered yet.
        done: Items answered with a record.
        begun: Items that were given to a worker, ever.
        queued_s: Seconds that these have waited, summed.
        failures: Items answered with a failure, by kind.
        batches: Executions, by the number of items in them.
        busy_s: Seconds in which devices were executing, summed over them.
        busy_share: Share of the time in which the devices were executing, 0 to 1.
        restarts: Workers that were replaced, by role.
    """

    elapsed_s: float = 0.0
    waiting: Mapping[str, int] = field(default_factory=dict)
    in_work: int = 0
    done: int = 0
    begun: int = 0
    queued_s: float = 0.0
    failures: Mapping[str, int] = field(default_factory=dict)
    batches: Mapping[int, int] = field(default_factory=dict)
    busy_s: float = 0.0
    busy_share: float = 0.0
    restarts: Mapping[str, int] = field(default_factory=dict)
