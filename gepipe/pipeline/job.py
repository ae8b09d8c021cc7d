"""A pipeline run over a list of inputs into files, from the beginning or from where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gepipe.errors import ConfigError
from gepipe.io.manifest import Manifest
from gepipe.io.outputs import Outputs
from gepipe.pipeline.allowance import failures_left
from gepipe.pipeline.apart import require_apart
from gepipe.pipeline.assembly import Plan, assemble, plan
from gepipe.pipeline.chosen import chosen_sink, chosen_source, path_of, paths_of
from gepipe.pipeline.feeds import InFlight, has_frames, listed_feed, require_frames
from gepipe.pipeline.tally import PartTally
from gepipe.runtime.options import Start
from gepipe.spec.normal import difference, normal_form
from gepipe.video.feed import VideoFeed

if TYPE_CHECKING:
    from gepipe.pipeline.chain import Chain
    from gepipe.runtime.events import Outcome
    from gepipe.runtime.feed import Feed
    from gepipe.runtime.statistics import Statistics
    from gepipe.runtime.supervisor import Supervisor
    from gepipe.spec.model import PipelineSpec
    from gepipe.video.progress import VideoProgress


@dataclass(frozen=True, slots=True)
class JobReport:
    """How a job ended.

    Attributes:
        statistics: Numbers of this run; None if there was nothing left to do.
        total: Inputs of the whole job.
        failed: Failures in the file, those of earlier runs included.
        output: The results.
        failures: The failures file.
        notes: What the user should know, such as the engine in use.
        parts: Of several models: parts of the inputs that this run has a result for. What those of
            an earlier run came to stands in the results alone.
    """

    statistics: Statistics | None
    total: int
    failed: int
    output: Path
    failures: Path
    notes: tuple[str, ...]
    parts: PartTally


class Job:
    """A pipeline, its inputs and its output files.

    Attributes:
        total: Inputs of the job, once they are listed; of videos their frames, once all are done.
        videos: How many videos the job has; None where its inputs are others.
        first: Index of the first input that this run has to do.
        batches: Rows of a batch of each model, once they are open.
        notes: What the user should know so far, such as the engine in use.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        *,
        inputs: Sequence[str] = (),
        output: str | None = None,
        resume: bool = False,
        limit: int | None = None,
    ) -> None:
        """Describe a job; nothing is opened yet.

        Args:
            spec: The pipeline.
            inputs: Paths that replace those of the YAML's source.
            output: Path that replaces that of the YAML's sink.
            resume: Whether to go on where the last run into the same output stopped.
            limit: Do the first so many inputs only.

        Raises:
            ConfigError: Source or sink is missing, or an argument is of another kind.
        """
        inputs, output = paths_of(inputs), path_of(output)
        if limit is not None and (type(limit) is not int or limit < 1):
            raise ConfigError(f"limit: expected a whole number of at least 1, got {limit!r}")
        self._spec = spec
        self._source = chosen_source(spec, inputs)
        self._sink = chosen_sink(spec, output)
        self._resume = resume
        self._limit = limit
        self._supervisor: Supervisor | Chain | None = None
        self._outputs: Outputs | None = None
        self._plan: Plan | None = None
        self._feed: Feed | None = None
        self._engine = ""
        self._stopping = False
        self.total: int | None = None
        self.videos: int | None = None
        self.batches: tuple[int, ...] = ()
        self.first = 0
        self.notes: tuple[str, ...] = ()

    def request_stop(self) -> None:
        """Ask a running job to stop soon. Safe in a signal handler and in any thread."""
        self._stopping = True
        if self._supervisor is not None:
            self._supervisor.request_stop()
        if self._outputs is not None:
            self._outputs.request_stop()

    def statistics(self) -> Statistics | None:
        """Return a frozen snapshot of the run; None before it began. Safe in any thread."""
        return self._supervisor.statistics() if self._supervisor is not None else None

    def video_progress(self) -> VideoProgress | None:
        """Return how far a job over videos is; None for others. Safe in any thread."""
        return self._feed.progress() if isinstance(self._feed, VideoFeed) else None

    @property
    def output(self) -> Path:
        """The file that the results go to."""
        return Path(self._sink.path)

    @property
    def done(self) -> int:
        """Inputs whose outcome is in the files, those of earlier runs included."""
        return self._outputs.next if self._outputs is not None else 0

    @property
    def failed(self) -> int:
        """Those of `done` that failed."""
        return self._outputs.failed if self._outputs is not None else 0

    @property
    def parts(self) -> PartTally:
        """Of several models: parts of the inputs that have a result since this run began."""
        return getattr(self._supervisor, "parts", None) or PartTally()

    @property
    def resumable(self) -> bool:
        """Whether a job that stopped can go on: that of inputs without an end cannot."""
        return self._source.finite

    @property
    def engine(self) -> str:
        """The engine that runs the model; empty before the run."""
        return self._engine

    def run(self, started: Callable[[], None] = lambda: None) -> JobReport:
        """Do the job, or what is left of it.

        Args:
            started: Called once the model is open and the first input is about to be dealt.

        Raises:
            ConfigError: The inputs or the output cannot be used, or resuming does not fit.
            Interrupted: `request_stop` was called; the files hold an exact prefix.
            GepipeError: See `gepipe.runtime.supervisor.Supervisor.run`.
        """
        spec = self._prepare()
        frames = has_frames(self._source)
        require_frames(self._source, self._sink)
        limit = None if frames else self._limit
        with Manifest.snapshot(self._source, limit=limit) as manifest:
            self.total = None if frames else len(manifest)
            self.videos = len(manifest) if frames else None
            require_apart(spec, self._source, self._sink, manifest.entries, resume=self._resume)
            with Outputs.open(
                self._sink,
                manifest if self._source.finite else None,
                normal_form(self._spec),
                resume=self._resume,
                difference=difference,
                last=self._limit if frames else None,
                unit="frame" if frames else "input",
                ordered=any(
                    op.ordered
                    for stage in self._spec.stages
                    if stage.role != "infer"
                    for op in stage.ops
                ),
            ) as outputs:
                self.notes += (*outputs.notes, *getattr(self._sink, "notes", ()))
                self.first = outputs.first
                self._outputs = outputs
                statistics = None
                if not outputs.done:
                    statistics = self._process(spec, manifest, outputs, started)
                outputs.close("complete")
                self.total = outputs.next
                return JobReport(
                    statistics,
                    self.total,
                    outputs.failed,
                    outputs.path,
                    outputs.failures_path,
                    self.notes,
                    self.parts,
                )

    def _prepare(self) -> PipelineSpec:
        """Settle what runs, and with what; return the pipeline as it is run."""
        self._plan = planned = plan(self._spec)
        self._engine = planned.engine
        self.notes = planned.notes
        return planned.prepared

    def _process(
        self,
        spec: PipelineSpec,
        manifest: Manifest,
        outputs: Outputs,
        started: Callable[[], None],
    ) -> Statistics:
        def begin(batch: int) -> Start:
            assert supervisor.info is not None
            self.notes += supervisor.info.notes
            self.batches = getattr(supervisor, "batches", (batch,))
            # From the start of its batch (of several models: of what shares batches of parts), so
            # that each batch has the same items as in a run without interruption: the batch's size
            # may show in a result's last digit.
            first = outputs.first - outputs.first % batch
            room = InFlight.of(
                self._spec,
                self._sink,
                batch=self.batches[0],
                group=batch,
                slots=supervisor.statistics().slots[0],
            )
            feed = listed_feed(self._source, manifest, room, first=first, limit=self._limit)
            stack.callback(feed.close)
            self._feed = feed
            outputs.attach(feed)
            outputs.begin()
            started()
            return Start(feed, first, outputs.first, allowed)

        def emit(outcomes: Sequence[Outcome]) -> None:
            if outcomes[0].index < outputs.next:
                outcomes = [each for each in outcomes if each.index >= outputs.next]
            outputs.write(outcomes)

        allowed = failures_left(spec, self.total, outputs.failed)
        assert self._plan is not None
        with (
            ExitStack() as stack,
            assemble(self._plan, self._source.reader, self._sink.encoder) as supervisor,
        ):
            self._supervisor = supervisor
            if self._stopping:
                supervisor.request_stop()
            return supervisor.run(begin, emit)
