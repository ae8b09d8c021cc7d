"""The fixed numbers of a service."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gepipe.runtime.events import Role, WorkerId


@dataclass(frozen=True, slots=True)
class ServingShape:
    """The fixed numbers of a service.

    Attributes:
        batch: Rows in a slot.
        depth: Slots a link, at least 2: each class leaves one to the other.
        workers: Workers of each role.
        names: Each role's stage name, for failures.
        in_flight: Batches that an infer worker works on at once.
        queue: Items of a class that may wait; more are refused.
        max_wait_s: How long a batch that is not full waits for more although a device is free.
        lost: Infer workers that get no process.
    """

    batch: int
    depth: int
    workers: Mapping[Role, int]
    names: Mapping[Role, str]
    in_flight: int = 1
    queue: int = 128
    max_wait_s: float = 0.0
    lost: Collection[WorkerId] = ()
