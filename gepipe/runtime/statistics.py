"""Numbers about a run: counted by the state, frozen for whoever looks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gepipe.runtime.stagecount import StageCount

if TYPE_CHECKING:
    from gepipe.runtime.events import Role, WorkerId
    from gepipe.runtime.options import Crew
    from gepipe.runtime.state import RunState


@dataclass(frozen=True, slots=True)
class StageStatistics:
    """A stage at one moment.

    Attributes:
        role: What its workers do.
        name: The stage's name in the YAML.
        workers: Its worker processes, as far as they were started.
        places: How many there may be once there is enough to do.
        items: Items finished, failures included.
        busy_s: Seconds of work, summed over the workers.
        utilisation: Share of the run's time that its workers were working, 0 to 1.
        waiting: Rows (for infer: batches) ready for it that no worker holds yet.
        restarts: Workers replaced.
    """

    role: Role
    name: str
    workers: int
    places: int
    items: int
    busy_s: float
    utilisation: float
    waiting: int
    restarts: int


def look_at_stages(
    crews: Mapping[Role, Crew],
    unstarted: Collection[WorkerId],
    state: RunState | None,
    elapsed_s: float,
) -> dict[str, StageStatistics]:
    """Return how each stage stands.

    Args:
        crews: The workers of each role.
        unstarted: Those that have had no process yet.
        state: The run; None before it began.
        elapsed_s: How long it has been running.
    """
    waiting = state.queue_lengths() if state else {}
    stages: dict[str, StageStatistics] = {}
    for role, crew in crews.items():
        count = state.counts[role] if state else StageCount()
        workers = len(crew.bodies) - sum(each.role == role for each in unstarted)
        busy_s = count.busy_ns / 1e9
        share = busy_s / (elapsed_s * workers) if elapsed_s else 0.0
        stages[role] = StageStatistics(
            role=role,
            name=crew.name,
            workers=workers,
            places=len(crew.bodies),
            items=count.items,
            busy_s=busy_s,
            utilisation=min(1.0, share),
            waiting=waiting.get(role, 0),
            restarts=count.restarts,
        )
    return stages


@dataclass(frozen=True, slots=True)
class Statistics:
    """A run at one moment.

    Attributes:
        total: Items to process, or None where the source does not know.
        done: Items with a result.
        failed: Items set aside.
        elapsed_s: Seconds since the workers became ready.
        stages: By role; of several models, by role and number.
        slots_used: Slots in use, of the input and of the output link.
        slots: Slots a link, of each model; empty before they are open.
        slot_nbytes: Shared memory of all slots, in bytes.
    """

    total: int | None
    done: int
    failed: int
    elapsed_s: float
    stages: Mapping[str, StageStatistics]
    slots_used: tuple[int, int]
    slots: tuple[int, ...]
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
