"""What a stage has done so far, as its state counts it."""

from __future__ import annotations

from dataclasses import dataclass

#: Weight of a new measurement in the running mean of an item's cost.
_NEW = 0.2


@dataclass(slots=True)
class StageCount:
    """What a stage has done so far.

    Attributes:
        items: Items finished, failures included; retries count again.
        busy_ns: Time its workers spent working, summed over them.
        ns_per_item: Running mean of an item's cost in one worker.
        restarts: Workers replaced.
    """

    items: int = 0
    busy_ns: int = 0
    ns_per_item: float = 0.0
    restarts: int = 0

    def add(self, items: int, busy_ns: int) -> None:
        """Count a finished ticket."""
        self.items += items
        self.busy_ns += busy_ns
        cost = busy_ns / items
        self.ns_per_item += (cost - self.ns_per_item) * (_NEW if self.ns_per_item else 1.0)
