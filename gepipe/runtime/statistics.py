"""Numbers about a run: counted by the state, frozen for whoever looks."""

from __future__ import annotations

from collections.abc import Mapping
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


@dataclass(frozen=True, slots=True)
class StageStatistics:
    """A stage at one moment.

    Attributes:
        name: The stage's name in the YAML.
        workers: Its worker processes, as far as they were started.
        places: How many there may be once there is enough to do.
        items: Items finished, failures included.
        busy_s: Seconds of work, summed over the workers.
        utilisation: Share of the run's time that its workers were working, 0 to 1.
        waiting: Rows (for infer: batches) ready for it that no worker holds yet.
        restarts: Workers replaced.
    """

    name: str
    workers: int
    places: int
    items: int
    busy_s: float
    utilisation: float
    waiting: int
    restarts: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """A run at one moment.

    Attributes:
        total: Items to process, or None where the source does not know.
        done: Items with a result.
        failed: Items set aside.
        elapsed_s: Seconds since the workers became ready.
        stages: By role.
        slots_used: Slots in use, of the input and of the output link.
        slots: Slots a link.
        slot_nbytes: Shared memory of all slots, in bytes.
    """

    total: int | None
    done: int
    failed: int
    elapsed_s: float
    stages: Mapping[str, StageStatistics]
    slots_used: tuple[int, int]
    slots: int
    slot_nbytes: int

    @property
    def rate(self) -> float:
        """Items a second, failures included."""
        return (self.done + self.failed) / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def slowest(self) -> StageStatistics | None:
        """The stage that holds the others back: the one whose workers are busiest."""
        busy = [stage for stage in self.stages.values() if stage.busy_s]
        return max(busy, key=lambda stage: stage.utilisation, default=None)
