"""What a run came to: for people a table and a line, for programs one JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gepipe.cli.results import table
from gepipe.cli.text import count, duration, harmless
from gepipe.errors import GepipeError, Interrupted, StageError
from gepipe.io.failures import failures_path, read_failures

if TYPE_CHECKING:
    from gepipe.pipeline.job import Job, JobReport
    from gepipe.runtime.statistics import Statistics


@dataclass(frozen=True, slots=True)
class Summary:
    """How a run ended. The names are the keys of `gepipe run --json`, and stay.

    Attributes:
        status: `complete`, `interrupted` or `failed`. A complete run may have failures.
        exit_code: What the command exits with.
        error: Why it failed; null if it did not.
        items: Inputs of the whole job, those of earlier runs included; null if it never began. Of
            videos the frames, and what failed of whole videos; null if that is not known yet.
        results: Items with a result, likewise.
        failures: Items without one, likewise.
        seconds: Time of this run, from the moment the workers were ready.
        items_per_s: Inputs of this run by that time.
        slowest_stage: Name of the stage that held the others back; null if nothing was done.
        stages: By name: `role`, `workers`, `items`, `busy_s`, `utilisation` (0 to 1), `restarts`.
        output: The results.
        failures_file: What failed and why.
        engine: What ran the model.
        parts: Parts in the results of this run, where a pipeline splits items; those of earlier
            runs are not counted.
        failed_parts: Those of them that failed; each is marked in its item's result. If all did,
            the exit code is 3.
        marred_items: Results of this run with such a part.
        first_failed_part: The first of these parts, and its failure: stage, kind and text; null if
            none did.
        notes: What else is worth knowing.
        videos: How many videos the items are frames of; null where they are others.
        dropped: Frames of live sources that there was no time for.
        first_item: Index of the first input of this run; those before it are of earlier runs.
    """

    status: str
    exit_code: int
    error: str | None
    items: int | None
    results: int
    failures: int
    seconds: float
    items_per_s: float
    slowest_stage: str | None
    output: str
    failures_file: str
    engine: str
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    parts: int = 0
    failed_parts: int = 0
    marred_items: int = 0
    first_failed_part: str | None = None
    notes: tuple[str, ...] = ()
    videos: int | None = None
    dropped: int = 0
    first_item: int = 0

    @classmethod
    def of(cls, job: Job, report: JobReport) -> Summary:
        """Sum up a job that reached its end."""
        failed = report.failed or (report.parts.failed and not report.parts.good)
        return cls(
            status="complete",
            exit_code=StageError.exit_code if failed else 0,
            error=None,
            items=report.total,
            results=report.total - report.failed,
            failures=report.failed,
            **_numbers(job, report.statistics),
        )

    @classmethod
    def of_stopped(cls, job: Job, error: GepipeError) -> Summary:
        """Sum up a job that did not reach its end."""
        stopped = isinstance(error, Interrupted)
        return cls(
            status="interrupted" if stopped else "failed",
            exit_code=error.exit_code,
            error=None if stopped else str(error),
            items=job.total,
            results=job.done - job.failed,
            failures=job.failed,
            **_numbers(job, job.statistics()),
        )

    def to_json(self) -> str:
        """Return one JSON object on one line, in ASCII, so that any reader takes it."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    def lines(self, *, color: bool) -> Iterator[str]:
        """Return the table of the first results and the line below it."""
        yield from table(Path(self.output), self.results, color=color)
        assert self.items is not None
        if self.videos is None:
            parts = [f"{self.results:,} of {count(self.items, 'input')} with results"]
        else:  # what failed may be whole videos, and nobody knows how many frames these have
            of = count(self.videos, "video")
            parts = [f"{count(self.results, 'frame')} of {of} with results"]
        if self.seconds:
            unit = "items" if self.videos is None else "frames"
            parts += [f"in {duration(self.seconds)}", f"{self.items_per_s:,.1f} {unit}/s"]
        if self.dropped:
            parts.append(f"{self.dropped:,} dropped for lack of time")
        parts += self._failures()
        if self.slowest_stage is not None:
            share = self.stages[self.slowest_stage]["utilisation"]
            parts.append(f"slowest stage: {self.slowest_stage}, busy {share:.0%}")
        yield harmless(" · ".join(parts))
        yield harmless(f"results: {self.output}")
        if self.videos and not self.items:
            yield "no frame was taken: none lies between `start` and `stop` of the source"
        if self.first_failed_part:
            yield harmless(f"first failure of a part: {self.first_failed_part}")
        if self.failures:
            try:
                first = next(read_failures(self.failures_file), None)
            except GepipeError as error:  # what somebody did to the file since it was written
                yield harmless(str(error))
            else:
                if first is not None:
                    yield harmless(f"first failure: {first.source}: {first.error}")
            yield harmless(f"failures, with the reasons: {self.failures_file}")

    def _failures(self) -> Iterator[str]:
        """Return how many items and parts failed."""
        if self.failures or not self.failed_parts:
            yield count(self.failures, "failure") if self.failures else "no failures"
        if self.failed_parts:
            failed = count(self.failed_parts, "part")
            if self.failed_parts == self.parts:
                failed = "the only part" if self.parts == 1 else f"all {failed}"
            of = " of this run" if self.first_item else ""
            yield f"{failed} of {count(self.marred_items, 'result')}{of} failed"
        elif self.parts and self.first_item:
            yield "no failed parts in this run"


def _numbers(job: Job, statistics: Statistics | None) -> dict[str, Any]:
    slowest = statistics.slowest if statistics else None
    stages = statistics.stages.values() if statistics else ()
    return {
        "seconds": round(statistics.elapsed_s, 3) if statistics else 0.0,
        "items_per_s": round(statistics.rate, 2) if statistics else 0.0,
        "slowest_stage": slowest.name if slowest else None,
        "stages": {
            stage.name: {
                "role": stage.role,
                "workers": stage.workers,
                "items": stage.items,
                "busy_s": round(stage.busy_s, 3),
                "utilisation": round(stage.utilisation, 3),
                "restarts": stage.restarts,
            }
            for stage in stages
        },
        "output": str(job.output),
        "failures_file": str(failures_path(job.output)),
        "engine": job.engine,
        "parts": job.parts.good + job.parts.failed,
        "failed_parts": job.parts.failed,
        "marred_items": job.parts.marred,
        "first_failed_part": job.parts.first_failed or None,
        "notes": job.notes,
        "videos": job.videos,
        "dropped": videos.dropped if (videos := job.video_progress()) is not None else 0,
        "first_item": job.first,
    }


def never_begun(error: GepipeError) -> dict[str, Any]:
    """Return the summary of a run whose pipeline or options are wrong: all else is null."""
    known = {"status": "failed", "exit_code": error.exit_code, "error": str(error)}
    return {name: known.get(name) for name in Summary.__slots__}
