"""Where a run that stopped is to go on, and whether it may.

Whatever moment a run dies at, results and failures are each a prefix of what they would have
become, give or take a torn last record, which scanning leaves out. So the point to go on from is
the first input that is in neither; nothing else needs to be remembered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gepipe.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gepipe.io.failures import FailuresFile
    from gepipe.io.job import Job
    from gepipe.io.manifest import Manifest
    from gepipe.io.sink import Mark, SinkFile

_ANEW = "or run without --resume to start anew"


@dataclass(frozen=True, slots=True)
class Point:
    """How far a run got.

    Attributes:
        index: First input without an outcome.
        results_end: Where the results end that lie before it.
        failures_end: Where the failures end that lie before it.
        failed: How many failures lie before it.
    """

    index: int
    results_end: int
    failures_end: int
    failed: int


def stopped_at(results: Iterator[Mark], failures: Iterator[Mark], first: int) -> Point:
    """Return how far a run over the inputs from `first` on got."""
    index, failed = first, 0
    ends = {True: 0, False: 0}
    for mark, is_result in _merged(results, failures):
        if mark.index != index:
            break
        index += 1
        failed += not is_result
        ends[is_result] = mark.end
    return Point(index, ends[True], ends[False], failed)


def begin_of_video(
    results: SinkFile, failures: FailuresFile, first: int, point: Point
) -> tuple[Point, bool]:
    """Return where the outcomes begin of the video that the last ones before `point` belong to.

    Inputs that are no frames of a video count as frames of one.

    Args:
        results: The results.
        failures: The failures.
        first: First input of the run.
        point: How far the run got.

    Returns:
        Where they begin, and whether there is a result among them.
    """
    begin, video, found = Point(first, 0, 0, 0), None, False
    index, failed = first, 0
    ends = {True: 0, False: 0}
    for mark, is_result in _merged(results.scan(), failures.scan()):
        if index == point.index:
            break
        name = video_of((results if is_result else failures).source_of(mark))
        if name != video:
            begin, video, found = Point(index, ends[True], ends[False], failed), name, False
        found |= is_result
        index += 1
        failed += not is_result
        ends[is_result] = mark.end
    return begin, found


def video_of(source: str) -> str:
    """Return the path in the source of a frame; nothing if it is none."""
    path, _, number = source.rpartition("#frame=")
    return path if number.isdigit() else ""


def require_same_pipeline(
    earlier: Job, job: Job, difference: Callable[[Any, Any], list[str]]
) -> None:
    """Check that a run may go on with what another pipeline may have begun.

    Raises:
        ConfigError: The pipelines differ; names each difference.
    """
    if earlier.output != job.output:
        raise ConfigError(
            f"cannot resume: the job file beside {job.output!r} belongs to {earlier.output!r}, "
            f"not to {job.output!r}; choose another stem, {_ANEW}"
        )
    now = job.stored_pipeline()
    if earlier.pipeline != now and (lines := difference(earlier.pipeline, now)):
        raise ConfigError(
            f"cannot resume into {job.output!r}: the pipeline has changed since:\n"
            + "\n".join(f"  {line}" for line in lines)
            + f"\nundo the change, {_ANEW}"
        )


def require_same_inputs(
    earlier: Job,
    job: Job,
    manifest: Manifest | None,
    files: tuple[SinkFile, FailuresFile],
    first: int,
) -> None:
    """Check that the inputs are those of the earlier run.

    Raises:
        ConfigError: They differ; names the first difference as closely as the files tell.
    """
    was, now = earlier.inputs, job.inputs
    if was is None or now is None or manifest is None:
        raise ConfigError(
            "cannot resume: the inputs have no known end, so they cannot be compared; run "
            "without --resume"
        )
    if was.digest == now.digest and was.count == now.count:
        if earlier.span == job.span:
            return
        raise ConfigError(
            f"cannot resume into {job.output!r}: it was begun for the {job.unit}s from "
            f"{_shown(earlier.span)}, not from {_shown(job.span)}; ask for the same range, {_ANEW}"
        )
    what = _first_other(manifest, *files, first) if job.unit == "input" else None
    if what is None and was.count != now.count:
        what = f"{was.count:,} inputs then, {now.count:,} now"
    if what is None and (span := was.first_change(now)):
        what = f"something differs in the inputs {span[0]:,} to {span[1] - 1:,}"
    raise ConfigError(
        f"cannot resume into {job.output!r}: the inputs have changed since: {what}; "
        f"restore them, {_ANEW}"
    )


def _shown(span: tuple[int, int | None]) -> str:
    return f"{span[0]:,} " + ("on" if span[1] is None else f"up to {span[1]:,}")


def _first_other(
    manifest: Manifest, results: SinkFile, failures: FailuresFile, first: int
) -> str | None:
    """Name the first input already done whose source is not what the manifest says."""
    entries = manifest.entries(first)
    expected = first
    for mark, is_result in _merged(results.scan(), failures.scan()):
        entry = next(entries, None)
        if mark.index != expected or entry is None:
            return None
        was = (results if is_result else failures).source_of(mark)
        if was != (results.spelled(entry.source) if is_result else entry.source):
            return f"input {mark.index:,} was {was!r}, now {entry.source!r}"
        expected += 1
    return None


def _merged(results: Iterator[Mark], failures: Iterator[Mark]) -> Iterator[tuple[Mark, bool]]:
    """Yield the marks of both files by index, each with whether it is a result."""
    result, failure = next(results, None), next(failures, None)
    while result or failure:
        if failure is None or (result is not None and result.index <= failure.index):
            assert result is not None
            yield result, True
            result = next(results, None)
        else:
            yield failure, False
            failure = next(failures, None)
