"""Runs a chain of models: a supervisor for each, in a thread of its own, and the join behind them.

Each leg is an ordinary run, and so is the join; see `gepipe.pipeline.chainrun` for what is between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gepipe.errors import ClosedError
from gepipe.pipeline.chainrun import ChainRun
from gepipe.pipeline.tally import PartTally
from gepipe.runtime.options import Start
from gepipe.runtime.statistics import Statistics

if TYPE_CHECKING:
    from typing_extensions import Self

    from gepipe.runtime.body import ModelInfo
    from gepipe.runtime.events import Outcome
    from gepipe.runtime.supervisor import Supervisor


class Chain:
    """Owns the supervisors of a pipeline of several models; has the interface of one.

    Attributes:
        group: Items after which all open batches of parts are closed; 0 before the models are open.
    """

    def __init__(
        self,
        legs: Sequence[Supervisor],
        join: Supervisor,
        names: Sequence[tuple[str, str]],
        singles: Sequence[bool],
        *,
        keep: bool,
    ) -> None:
        """Describe the runs; nothing is started yet.

        Args:
            legs: One for each model.
            join: Puts items together again.
            names: What the two kinds of workers of each mid stage and of the post stage are called.
            singles: For each split, whether an item has exactly one part.
            keep: Whether the join reads the items' pictures.
        """
        self.group = 0
        self._singles = tuple(singles)
        self._keep = keep
        self._legs = tuple(legs)
        self._join = join
        self._names = names
        self._run: ChainRun | None = None
        self._closed = False

    # --- for the caller ---------------------------------------------------------------------------

    @property
    def info(self) -> ModelInfo | None:
        """What the first model says of itself, with the notes of all; None before all are open."""
        infos = [leg.info for leg in self._legs]
        if None in infos:
            return None
        notes = together(
            {
                leg.statistics().stages["infer"].name: info.notes
                for leg, info in zip(self._legs, infos, strict=True)
                if info is not None
            }
        )
        assert infos[0] is not None
        return replace(infos[0], notes=notes)

    def run(
        self, start: Callable[[int], Start], emit: Callable[[Sequence[Outcome]], None]
    ) -> Statistics:
        """Process a feed to its end; see `gepipe.runtime.supervisor.Supervisor.run`.

        Args:
            start: Given the number of items that share batches, returns the items; the first one's
                number is to be a multiple of it.
            emit: Takes outcomes in input order; called in this thread.
        """
        if self._closed:
            raise ClosedError("this chain is closed")
        self._run = run = ChainRun(
            self._legs, self._join, start, emit, singles=self._singles, keep=self._keep
        )
        try:
            run.work()
        except BaseException:
            self.close()
            raise
        finally:
            self.group = run.group
        return self.statistics()

    def request_stop(self) -> None:
        """Ask the run to stop soon. Safe in a signal handler and in any thread."""
        if self._run is not None:
            self._run.stopping = True
        for supervisor in (*self._legs, self._join):
            supervisor.request_stop()

    def statistics(self) -> Statistics:
        """Return a frozen snapshot. Safe in any thread."""
        return _sum([leg.statistics() for leg in self._legs], self._join.statistics(), self._names)

    @property
    def batches(self) -> tuple[int, ...]:
        """Rows of a batch of each model; empty before all are open."""
        return tuple(self._run.batches) if self._run is not None else ()

    @property
    def parts(self) -> PartTally:
        """Parts of the items of this run that have a result."""
        return self._run.tally if self._run is not None else PartTally()

    def close(self) -> None:
        """Stop the workers and free their memory. Closing twice is harmless."""
        self._closed = True
        for supervisor in (*self._legs, self._join):
            supervisor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def together(notes: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return what is to be told of several models: once what holds for all, else by the model."""
    found: dict[str, None] = {}
    for name, its in notes.items():
        for note in its:
            shared = all(note in others for others in notes.values())
            found[note if shared else f"{name}: {note}"] = None
    return tuple(found)


def _sum(
    legs: Sequence[Statistics], join: Statistics, names: Sequence[tuple[str, str]]
) -> Statistics:
    """Return the numbers of a chain as those of one run."""
    stages = {}
    for number, leg in enumerate(legs):
        for role, stage in leg.stages.items():
            name = stage.name
            if role == "pre" and number:
                name = names[number - 1][1]
            elif role == "post" and number < len(legs) - 1:
                name = names[number][0]
            stages[f"{role} {number + 1}"] = replace(stage, name=name)
    for stage in join.stages.values():
        stages["join"] = replace(stage, name=names[-1][1])
    used = [sum(leg.slots_used[side] for leg in legs) for side in (0, 1)]
    return Statistics(
        total=legs[0].total,
        done=join.done,
        failed=join.failed,
        elapsed_s=join.elapsed_s,
        stages=stages,
        slots_used=(used[0], used[1]),
        slots=tuple(slots for leg in legs for slots in leg.slots),
        slot_nbytes=sum(leg.slot_nbytes for leg in legs),
    )
