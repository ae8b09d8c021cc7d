"""A service at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Executed(NamedTuple):
    """An execution that was done.

    Attributes:
        place: Index of the infer worker that did it.
        items: Items in it.
        waited_s: Seconds from the arrival of the first of them to its hand-over to the device.
        busy_s: Seconds in which the device was executing.
    """

    place: int
    items: int
    waited_s: float
    busy_s: float


@dataclass(frozen=True, slots=True)
class ServiceStatistics:
    """Numbers about a service since it became ready.

    Attributes:
        in_work: Items that were given to a worker and are not answered yet.
        done: Items answered with a record.
        failures: Items answered with a failure, by kind.
        restarts: Workers that were replaced, by role.
    """

    in_work: int = 0
    done: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    restarts: Mapping[str, int] = field(default_factory=dict)
