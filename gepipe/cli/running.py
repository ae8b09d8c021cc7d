"""One run on the command line: start, progress, and how it ended."""

from __future__ import annotations

import gc
import json
import logging
import shlex
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from gepipe.cli import signals
from gepipe.cli.progress import Progress
from gepipe.cli.summary import Summary, never_begun
from gepipe.cli.text import count, harmless, is_terminal, print_error, print_out, size, spread
from gepipe.errors import GepipeError, Interrupted
from gepipe.pipeline.job import Job
from gepipe.spec.load import load
from gepipe.spec.model import PipelineSpec


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The options of `gepipe run`; see its help."""

    file: str
    inputs: tuple[str, ...] = ()
    output: str | None = None
    overrides: tuple[str, ...] = ()
    limit: int | None = None
    resume: bool = False
    json: bool = False
    quiet: bool = False
    via: str | None = None
    concurrency: int = 32


def run_job(request: RunRequest) -> int:
    """Do the job and return the exit code.

    Raises:
        GepipeError: The job could not be done; see `gepipe.pipeline.job.Job.run`.
    """
    try:
        spec = load(request.file, request.overrides)
        job = _job(spec, request)
    except GepipeError as error:
        if request.json:  # whoever reads it gets one object, whatever happens
            print_out(json.dumps(never_begun(error)))
        raise
    return execute(job, spec.name, as_json=request.json, quiet=request.quiet)


def execute(job: Job, name: str, *, as_json: bool = False, quiet: bool = False) -> int:
    """Do a job, showing how far it is and what it came to, and return the exit code.

    Args:
        job: The job.
        name: What to call it.
        as_json: Whether to write the summary as JSON instead of the table.
        quiet: Whether to say nothing but errors.

    Raises:
        GepipeError: The job could not be done; see `gepipe.pipeline.job.Job.run`.
    """
    progress = Progress(job)
    lines = _Lines(progress, logging.ERROR if quiet else logging.WARNING)
    logging.getLogger("gepipe").addHandler(lines)

    def started() -> None:
        if not quiet:
            progress.say(_opening(name, job))

    gc.freeze()  # what was imported stays for good
    gc.enable()
    try:
        with signals.stopping(job, lines.mute), nullcontext() if quiet else progress:
            report = job.run(started)
    except GepipeError as error:
        return _ended_early(job, error, as_json=as_json, quiet=quiet)
    summary = Summary.of(job, report)
    if as_json:
        print_out(summary.to_json())
    elif not quiet:
        if report.statistics is None:
            for note in job.notes:
                print_error(harmless(note))
        for line in summary.lines(color=is_terminal(sys.stdout)):
            print_out(line)
    return summary.exit_code


def _job(spec: PipelineSpec, request: RunRequest) -> Job:
    """Return the job, to be done here or by a server."""
    if request.via is None:
        return Job(
            spec,
            inputs=request.inputs,
            output=request.output,
            resume=request.resume,
            limit=request.limit,
        )
    from gepipe.serving.remote import RemoteJob
    from gepipe.triton.address import Address
    from gepipe.triton.client import ClientOptions

    return RemoteJob(
        spec,
        Address.parse(request.via),
        ClientOptions(concurrency=request.concurrency),
        inputs=request.inputs,
        output=request.output,
        resume=request.resume,
        limit=request.limit,
    )


def _ended_early(job: Job, error: GepipeError, *, as_json: bool, quiet: bool) -> int:
    if as_json:
        print_out(Summary.of_stopped(job, error).to_json())
    done = f"{job.done:,} of {job.total:,} done" if job.total is not None else "nothing done"
    if job.videos is not None and job.done:
        done = f"{count(job.done, 'frame')} done"
    if not isinstance(error, Interrupted):
        if not job.done:
            raise error
        from gepipe.cli.text import harmless_lines

        print_error(f"error: {harmless_lines(str(error))}")
        print_error(done + (f"; once the cause is gone, go on with: {_resuming()}" * job.resumable))
    elif job.done or not quiet:
        goes_on = job.done and job.resumable
        print_error(f"stopped: {done}" + (f"; go on with: {_resuming()}" if goes_on else ""))
    return error.exit_code


def _resuming() -> str:
    """Return the command that goes on where this one stopped."""
    words = [Path(sys.argv[0]).name, *sys.argv[1:]]
    return harmless(shlex.join([*words, *(["--resume"] if "--resume" not in words else [])]))


def _opening(name: str, job: Job) -> str:
    """Say aloud what runs, and with what."""
    statistics = job.statistics()
    assert statistics is not None
    if job.videos is not None:
        heading = f"{name}: {count(job.videos, 'video')}"
        heading += f", from frame {job.first:,} on" if job.first else ""
    else:
        assert job.total is not None
        heading = f"{name}: {count(job.total - job.first, 'input')}"
        heading += f" left of {job.total:,}" if job.first else ""
    lines = spread("; ".join((heading, *job.notes[:1])), job.notes[1:])
    if job.batches:
        workers = ", ".join(
            f"{stage.name} {stage.workers}"
            + (f" (up to {stage.places})" if stage.places > stage.workers else "")
            for stage in statistics.stages.values()
        )
        batch = ", ".join(map(str, job.batches))
        slots = ", ".join(map(str, statistics.slots))
        lines.append(
            f"workers: {workers}; batch {batch}; slots {slots} a link, "
            f"{size(statistics.slot_nbytes)} of shared memory"
        )
    return "\n".join(harmless(line) for line in lines)


class _Lines(logging.Handler):
    """Writes each warning as one plain line that does not break the progress line."""

    def __init__(self, progress: Progress, level: int) -> None:
        super().__init__(level)
        self._progress = progress

    def mute(self) -> None:
        """Write no more: a signal to the whole process group ends workers too, which is no news."""
        self.setLevel(logging.CRITICAL)

    def emit(self, record: logging.LogRecord) -> None:
        word = getattr(record, "word", record.levelname.lower())
        self._progress.say(f"{word}: {harmless(record.getMessage())}")
