"""The files of a job, driven as one: results, failures and the job file.

Results and failures are both in input order, and each input ends up in exactly one of the two. A
batch's failures are written before its results: whoever reads the results while a run goes on
finds the reason for each gap in the failures.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gepipe.errors import ClosedError, ConfigError, GepipeError, InternalError, Interrupted
from gepipe.io.failures import FailuresFile, beside, failures_path, read_failures
from gepipe.io.job import Inputs, Job, gepipe_version
from gepipe.io.records import close_all
from gepipe.io.resume import (
    begin_of_video,
    require_same_inputs,
    require_same_pipeline,
    stopped_at,
)
from gepipe.io.sink import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from typing_extensions import Self

    from gepipe.io.failures import Failure
    from gepipe.io.manifest import Manifest
    from gepipe.io.sink import Sink, SinkFile


def files_of(sink: Sink) -> list[Path]:
    """Return every file that a run into `sink` writes."""
    output = Path(sink.path)
    more: tuple[Path, ...] = getattr(sink, "neighbours", ())
    return [output, failures_path(output), beside(output, ".job.json"), *more]


class Outputs:
    """Results, failures and job file of one run, open and locked.

    Attributes:
        first: Index of the first input that still needs an outcome.
        next: Index of the input whose outcome is to be written next.
        failed: Failures in the file, those of an earlier run that is continued included.
        done: Whether nothing is left to do, because the job is complete already.
        notes: What the user should be told once, such as where the run goes on.
        path: The results.
        failures_path: The failures.
        job_path: The job file.
    """

    def __init__(self, sink: Sink, job: Job) -> None:
        self.path = Path(sink.path)
        self.failures_path = failures_path(sink.path)
        self.job_path = beside(sink.path, ".job.json")
        self.first = self.next = self.failed = 0
        self.done = False
        self.notes: tuple[str, ...] = ()
        self._job = job
        self._fresh = False
        self._results: SinkFile | None = None
        self._see: Callable[[Sequence[Record | Failure]], None] | None = None
        self._stop: Callable[[], None] | None = None
        self._failures: FailuresFile | None = None

    @classmethod
    def open(  # noqa: PLR0913 - each is a fact of the job, and most have a default
        cls,
        sink: Sink,
        manifest: Manifest | None,
        pipeline_form: Mapping[str, Any],
        *,
        difference: Callable[[Any, Any], list[str]],
        resume: bool = False,
        first: int = 0,
        last: int | None = None,
        unit: str = "input",
        ordered: bool = False,
    ) -> Self:
        """Open the files of a job, or cut them back to where its last run got.

        What an earlier job left stays until `begin`, so that a run that fails to start costs
        nothing.

        Args:
            sink: Where the results go.
            manifest: The inputs, or None if they have no known end; then there is no resuming.
            pipeline_form: All that the output depends on, in normal form: JSON values only.
            difference: Names what differs between two pipelines in normal form, a line each.
            resume: Whether to go on with what is there. Otherwise it is replaced.
            first: Index of the first input, where a run does only a range of the list.
            last: Index behind the last input of that range.
            unit: `frame` where an outcome is that of a frame, and the inputs are videos.
            ordered: Whether results depend on those before them in the same video, so that a run
                can only go on at the first frame of one.

        Raises:
            ConfigError: The files cannot be written or belong to a run that is going on; or, to
                resume, the pipeline or the inputs are not those of the earlier run.
        """
        if manifest is not None and manifest.is_read_from(sink.path):
            raise ConfigError(
                f"{sink.path!r} is what the inputs are read from; write to another file"
            )
        inputs = None if manifest is None else Inputs.of(manifest)
        if last is None and inputs is not None and unit == "input":
            last = inputs.count
        name = Path(sink.path).name
        span = (first, last)
        job = Job(gepipe_version(), name, "running", inputs, span, pipeline_form, unit=unit)
        self = cls(sink, job)
        self.first = self.next = first
        earlier = Job.load(self.job_path) if resume else None
        if not resume:
            self._require_own_neighbours()
        if earlier is not None:
            require_same_pipeline(earlier, job, difference)
            done = last if earlier.items is None else earlier.items
            if done is not None and self._is_complete(earlier):
                self.done = True
                self.first = self.next = done
                self.failed = sum(1 for _ in read_failures(self.failures_path))
                self.notes = (f"{str(self.path)!r} is complete already: nothing left to do",)
                return self
        elif resume and self.path.exists() and self.path.stat().st_size:
            raise ConfigError(
                f"cannot resume into {str(self.path)!r}: there is no {str(self.job_path)!r} that "
                "says what wrote it; run without --resume to replace it"
            )
        with ExitStack() as stack:
            self._results = results = sink.open()
            self._see = getattr(results, "see", None)
            self._stop = getattr(results, "request_stop", None)
            stack.callback(results.close, complete=False)
            self._failures = failures = FailuresFile(self.failures_path)
            stack.callback(failures.close)
            if earlier is not None:
                self._go_on(earlier, manifest, first, ordered=ordered)
                job.save(self.job_path)
            self._fresh = earlier is None
            stack.pop_all()
        return self

    def attach(self, feed: Any) -> None:
        """Show the feed of the run to a sink that keeps frames of it. Before `begin`.

        Raises:
            GepipeError: The sink cannot work with this feed.
        """
        attach = getattr(self._results, "attach", None)
        if attach is not None:
            attach(feed)

    def begin(self) -> None:
        """Drop what an earlier job left. The first `write` does it too."""
        if not self._fresh or self._results is None or self._failures is None:
            return
        self._fresh = False
        # In this order, or a crash in between could pair the old job with new results.
        self.job_path.unlink(missing_ok=True)
        self._results.clear()
        self._failures.clear()
        self._job.save(self.job_path)

    def write(self, outcomes: Iterable[Record | Failure]) -> None:
        """Write outcomes of the next inputs, in order and without gaps.

        Raises:
            GepipeError: The disk is full or fails; the files stay exact prefixes.
        """
        if self._results is None or self._failures is None:
            raise ClosedError("these outputs are closed")
        self.begin()
        records: list[Record] = []
        failed: list[Failure] = []
        outcomes = list(outcomes)
        expected = self.next
        for outcome in outcomes:
            if outcome.index != expected:
                raise InternalError(f"outcome of input {outcome.index} where {expected} was due")
            expected += 1
            if type(outcome) is Record:
                records.append(outcome)
            else:
                failed.append(outcome)  # type: ignore[arg-type]
        if self._see is not None:
            self._see(outcomes)
        if failed:
            self._failures.write(failed)
        if records:
            self._results.write(records)
        self.failed += len(failed)
        self.next = expected

    def request_stop(self) -> None:
        """Ask not to wait for what may never come. Safe in a signal handler and in any thread."""
        if self._stop is not None:
            self._stop()

    def close(self, status: Literal["complete", "interrupted"]) -> None:
        """Bring the files to the disk and say in the job file how the run ended.

        Closing twice is harmless. An interrupted job can be resumed, whatever stopped it.

        Raises:
            InternalError: A job is called complete that lacks outcomes; it is interrupted then.
        """
        if status == "complete":
            self.begin()
        results, failures = self._results, self._failures
        self._results = self._failures = None
        if results is None or failures is None:
            return
        last = self._job.span[1] if self._job.unit == "input" else None
        lacking = status == "complete" and last is not None and self.next < last
        if lacking:
            status = "interrupted"
        close_all(partial(results.close, complete=status == "complete"), failures.close)
        if self._fresh:
            return  # never begun: all is as it was
        sizes = self._sizes() if status == "complete" else None
        items = self.next if status == "complete" else None
        replace(self._job, status=status, sizes=sizes, items=items).save(self.job_path)
        if lacking:
            raise InternalError(f"complete at input {self.next} of {last}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            self.close("interrupted")
        except GepipeError:
            # What stopped the run is what to tell; what follows from it is not. A stop that was
            # asked for is no error, though, and promises that the files are whole.
            if error is None or isinstance(error, Interrupted):
                raise

    def _require_own_neighbours(self) -> None:
        """Refuse to replace the failures and the job file of another output of the same stem."""
        try:
            other = Job.load(self.job_path)
        except ConfigError:
            return  # damaged: nobody can go on with it
        if other is None or other.output == self.path.name:
            return
        if (self.path.parent / other.output).exists():
            raise ConfigError(
                f"{str(self.failures_path)!r} and {str(self.job_path)!r} belong to "
                f"{other.output!r}, whose failures would be lost; write to another name than "
                f"{self.path.stem!r}, or remove them first"
            )

    def _is_complete(self, earlier: Job) -> bool:
        return (
            earlier.status == "complete"
            and earlier.inputs == self._job.inputs
            and earlier.inputs is not None
            and earlier.span == self._job.span
            and earlier.sizes == self._sizes()
        )

    def _sizes(self) -> tuple[int, int] | None:
        """Return the sizes of results and failures, by which a complete job knows its files."""
        try:
            return self.path.stat().st_size, self.failures_path.stat().st_size
        except OSError:
            return None

    def _go_on(self, earlier: Job, manifest: Manifest | None, first: int, *, ordered: bool) -> None:
        results, failures = self._results, self._failures
        assert results is not None
        assert failures is not None
        require_same_inputs(earlier, self._job, manifest, (results, failures), first)
        point = stopped_at(results.scan(), failures.scan(), first)
        films = getattr(results, "by_video", False)
        if (ordered or films) and point.index > first:
            begin, found = begin_of_video(results, failures, first, point)
            if not (films and found):  # a line is only found where its film is whole
                point = begin
        results.cut(point.results_end)
        failures.cut(point.failures_end)
        self.failed = point.failed
        self.first = self.next = point.index
        where = f"{self._job.unit} {point.index:,}"
        if self._job.unit == "input":
            where += f" of {self._job.count_text()}"
        self.notes = (f"going on at {where}",)
        if earlier.gepipe != self._job.gepipe:
            self.notes += (f"the results so far are of gepipe {earlier.gepipe}",)
