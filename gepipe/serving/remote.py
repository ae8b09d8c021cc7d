"""A job that a server does: the inputs of a pipeline file go to the pipeline as it is served."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gepipe.errors import ConfigError, StageError
from gepipe.io.failures import Failure
from gepipe.io.videos import VideoFiles
from gepipe.pipeline.allowance import failures_left
from gepipe.pipeline.feeds import require_frames
from gepipe.pipeline.job import Job
from gepipe.runtime.statistics import StageStatistics, Statistics
from gepipe.serving.records import recorder_for
from gepipe.triton.client import Client, ClientOptions

if TYPE_CHECKING:
    from gepipe.io.manifest import Manifest
    from gepipe.io.outputs import Outputs
    from gepipe.spec.model import PipelineSpec
    from gepipe.triton.address import Address


class RemoteJob(Job):
    """A pipeline's inputs and outputs here, its stages in a server.

    Source, sink, `on_error` and `max_failures` are the file's; what the stages do is what was
    exported.
    """

    def __init__(  # noqa: PLR0913 - each is a fact of the job
        self,
        spec: PipelineSpec,
        address: Address,
        options: ClientOptions,
        *,
        inputs: Sequence[str] = (),
        output: str | None = None,
        resume: bool = False,
        limit: int | None = None,
    ) -> None:
        """Describe a job; nothing is opened yet. See `gepipe.pipeline.job.Job`.

        Args:
            spec: The pipeline; the served model bears its name.
            address: The server.
            options: How it is called.
            inputs: Paths that replace those of the YAML's source.
            output: Path that replaces that of the YAML's sink.
            resume: Whether to go on where the last run into the same output stopped.
            limit: Do the first so many inputs only.
        """
        super().__init__(spec, inputs=inputs, output=output, resume=resume, limit=limit)
        self._address = address
        self._options = options
        if isinstance(self._source, VideoFiles):
            raise ConfigError(
                "source: frames of videos are not sent to a server; leave --via out to run here"
            )
        require_frames(self._source, self._sink)
        reader = self._source.reader
        self._client = Client(
            address,
            spec.name,
            options,
            reader=reader,
            stage=spec.pre.name,
            encode=recorder_for(self._sink, reader, spec.pre.ops),
        )
        self._opened = False
        self._began = self._elapsed_s = 0.0
        self._failed_before = 0

    def request_stop(self) -> None:
        """Ask a running job to stop soon. Safe in a signal handler and in any thread."""
        self._client.request_stop()

    def statistics(self) -> Statistics | None:
        """Return a frozen snapshot of the run; None before it began. Safe in any thread."""
        if not self._opened:
            return None
        done = failed = 0
        if self._outputs is not None and self._began:
            failed = self._outputs.failed - self._failed_before
            done = self._outputs.next - self.first - failed
        elapsed_s = self._elapsed_s or (time.monotonic() - self._began if self._began else 0.0)
        busy_s, threads = self._client.busy_s, self._options.concurrency
        stage = StageStatistics(
            role="infer",
            name="server",
            workers=threads,
            places=threads,
            items=done + failed,
            busy_s=busy_s,
            utilisation=min(1.0, busy_s / (elapsed_s * threads)) if elapsed_s else 0.0,
            waiting=0,
            restarts=0,
        )
        return Statistics(
            total=self.total,
            done=done,
            failed=failed,
            elapsed_s=elapsed_s,
            stages={"infer": stage},
            slots_used=(0, 0),
            slots=(),
            slot_nbytes=0,
        )

    def _prepare(self) -> PipelineSpec:
        self._opened = True
        served = self._client.open()
        array = not hasattr(self._source.reader, "max_bytes")
        if array is (served.datatype == "BYTES"):
            kind = "arrays" if array else "files"
            raise ConfigError(
                f"{self._address}: model {served.name!r} takes {served.datatype} as "
                f"{served.input!r}, and the source of {self._spec.name!r} gives {kind}; "
                "export the pipeline with the source that it is called with"
            )
        self._engine = f"triton {self._address}"
        self.notes = (
            f"server {self._address}, model {served.name!r}",
            f"{self._options.concurrency} calls at a time",
        )
        if self._spec.mids:
            self.notes += ("parts that fail are marked in the results, and not counted here",)
        return self._spec

    def _process(
        self,
        spec: PipelineSpec,
        manifest: Manifest,
        outputs: Outputs,
        started: Callable[[], None],
    ) -> Statistics:
        outputs.begin()
        self._failed_before = outputs.failed
        allowed = failures_left(spec, len(manifest), outputs.failed)
        self._began = time.monotonic()
        started()
        for outcomes in self._client.run(manifest.entries(outputs.first), outputs.first):
            outputs.write(outcomes)
            if allowed is not None and outputs.failed - self._failed_before > allowed:
                last = next(each for each in reversed(outcomes) if isinstance(each, Failure))
                bound = (
                    "no failure is" if allowed == 0 else f"no more than {allowed:,} failures are"
                )
                raise StageError(
                    f"{last.source}: {last.stage}: {last.error}; stopped, since {bound} allowed "
                    "in this run (on_error, max_failures)"
                )
        self._elapsed_s = time.monotonic() - self._began
        if self._client.retries:
            self.notes += (f"{self._client.retries:,} calls were made again, the server was busy",)
        statistics = self.statistics()
        assert statistics is not None
        return statistics
