"""The Python interface: a pipeline that yields results in order, or does a job into files."""

from __future__ import annotations

import atexit
import os
import pickle
import threading
import weakref
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from inspect import GEN_CLOSED, getgeneratorstate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gepipe.errors import ClosedError, ConfigError
from gepipe.io.failures import Failure
from gepipe.io.memory import MemoryItems
from gepipe.io.videos import VideoFiles
from gepipe.ops.text import Tokenize
from gepipe.pipeline.allowance import failures_left
from gepipe.pipeline.assembly import assemble, plan
from gepipe.pipeline.crews import worker_environment
from gepipe.pipeline.feeds import InFlight, drawn_feed, has_frames
from gepipe.pipeline.handoff import Handoff
from gepipe.pipeline.job import Job
from gepipe.pipeline.objects import to_bytes
from gepipe.runtime.feed import ListedFeed
from gepipe.runtime.forkserver import start_server
from gepipe.runtime.limits import told
from gepipe.runtime.options import RunOptions, Start
from gepipe.spec.load import load

if TYPE_CHECKING:
    from typing_extensions import Self

    from gepipe.io.sink import Record
    from gepipe.io.source import Reader, Source
    from gepipe.pipeline.chain import Chain
    from gepipe.runtime.events import Outcome
    from gepipe.runtime.statistics import Statistics
    from gepipe.runtime.supervisor import Supervisor
    from gepipe.spec.model import PipelineSpec

#: Portions of outcomes that may wait for a slow consumer before the run waits for it.
_AHEAD: Final = 8


#: Those that may have workers; closed when the interpreter ends, while threads still run.
_open: weakref.WeakSet[Pipeline] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pipeline in list(_open):
        pipeline.close()


class Result(NamedTuple):
    """What the pipeline made of one input.

    Attributes:
        index: Position of the input, counted from 0.
        source: The input's path, or `input[3]` for one that has none.
        value: What the last post operator returned.
    """

    index: int  # type: ignore[assignment] # hides tuple.index, which nobody needs here
    source: str
    value: Any


class Pipeline:
    """A pipeline with its workers. Use it in a `with` block, or close it.

        with gepipe.Pipeline.from_yaml("pipelines/classify.yaml") as pipeline:
            for result in pipeline.run(["a.jpg", "b.jpg"]):
                print(result.source, result.value)

    The workers start with the first run and serve the later ones too.

    Attributes:
        spec: The pipeline as it was read from the YAML.
        failures: Inputs of the last `run` that have no result, in order.
    """

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        self.failures: list[Failure] = []
        self._supervisor: Supervisor | Chain | None = None
        self._reader: Reader | None = None
        self._chosen: tuple[str, ...] = ()
        self._running: weakref.ref[Generator[Result]] | None = None  # left early, it ends itself
        self._closed = False
        self._pid = os.getpid()
        _open.add(self)

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Self:
        """Read a pipeline file.

        Args:
            path: The YAML file.
            overrides: Changes such as `preprocess.batch_size=16`.

        Raises:
            ConfigError: Lists every problem as `file:line: key: problem`.
        """
        return cls(load(path, overrides))

    def run(self, inputs: Iterable[Any] | None = None) -> Iterator[Result]:
        """Yield the results in the order of the inputs, while the pipeline goes on in background.

        An input that fails has no result: it is added to `failures`.

        Args:
            inputs: Paths, bytes of files, arrays or dicts of arrays, and texts where the first
                operator is `tokenize`, drawn as there is room for them; the YAML's source by
                default. May be a generator without an end. A list of paths takes the place of
                the videos where the YAML's source is `videos`.

        Raises:
            GepipeError: The pipeline cannot go on; the results so far have been yielded.
        """
        if self._closed:
            raise ClosedError("this pipeline is closed")
        self._check_process()
        if self._run is not None:
            raise ClosedError("this pipeline is running; finish or close the other run first")
        if isinstance(inputs, str | bytes | bytearray | os.PathLike):
            raise ConfigError(f"inputs: expected a list of them, got one {type(inputs).__name__}")
        source: Source
        if inputs is not None and (videos := _videos(self.spec, inputs)) is not None:
            source = videos
        elif inputs is not None:
            ops = self.spec.pre.ops
            source = MemoryItems(inputs, texts=bool(ops) and isinstance(ops[0], Tokenize))
        elif self.spec.source is not None:
            source = self.spec.source
        else:
            raise ConfigError(f"{self.spec.name}: there are no inputs; set `source:` or pass them")
        self.failures = []
        supervisor = self._supervisor_for(source.reader)
        results = self._results(supervisor, source, inputs)
        self._running = weakref.ref(results)
        return results

    def job(
        self,
        inputs: Sequence[str] = (),
        output: str | None = None,
        *,
        resume: bool = False,
        limit: int | None = None,
    ) -> Job:
        """Return a job of this pipeline over files into files; see `Job`."""
        return Job(self.spec, inputs=inputs, output=output, resume=resume, limit=limit)

    def statistics(self) -> Statistics | None:
        """Return a frozen snapshot of the run; None before the first one."""
        return self._supervisor.statistics() if self._supervisor is not None else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What was chosen, and what the engine says of the model; empty before the first run."""
        info = self._supervisor.info if self._supervisor is not None else None
        return (*self._chosen, *info.notes) if info is not None else ()

    def close(self) -> None:
        """Stop the workers, and the run that is going on. Closing twice is harmless.

        In a child of fork() it does nothing: the workers are the parent's.
        """
        if self._pid != os.getpid():
            return
        self._closed = True
        _open.discard(self)
        run = self._run
        try:
            if run is not None:
                run.close()
        except ValueError:  # another thread waits for its next result: it is told `Interrupted`
            if self._supervisor is not None:
                self._supervisor.request_stop()
            return
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise ClosedError("this pipeline belongs to another process; make a new one")

    @property
    def _run(self) -> Generator[Result] | None:
        """The run that somebody still holds and that is not at its end."""
        run = self._running() if self._running is not None else None
        # One that was closed before it began has not told so.
        over = run is None or getgeneratorstate(run) == GEN_CLOSED
        return None if over else run

    def _supervisor_for(self, reader: Reader) -> Supervisor | Chain:
        if self._supervisor is not None and reader != self._reader:
            self._stop()
        if self._supervisor is None:
            start_server()
            planned = plan(self.spec)
            wait = planned.legs[0].max_wait
            self._reader = reader
            self._chosen = planned.notes
            self._supervisor = assemble(
                planned,
                reader,
                to_bytes,
                RunOptions(
                    environ=worker_environment(), **({} if wait is None else {"max_wait_s": wait})
                ),
            )
        return self._supervisor

    def _results(
        self, supervisor: Supervisor | Chain, source: Source, inputs: Iterable[Any] | None
    ) -> Generator[Result]:
        handoff: Handoff[Sequence[Outcome]] = Handoff(_AHEAD)

        def work() -> None:
            with ExitStack() as stack:
                try:
                    start = partial(_start, self.spec, source, inputs, stack, supervisor)
                    supervisor.run(start, handoff.put)
                    handoff.end()
                except BaseException as error:  # noqa: BLE001 - raised in the consumer's thread
                    handoff.end(error)

        thread = threading.Thread(target=work, name="gepipe run", daemon=True)
        with told("cannot run in background"):
            thread.start()
        try:
            while (portion := handoff.get()) is not None:
                for outcome in portion:
                    result = outcome if isinstance(outcome, Failure) else self._result(outcome)
                    if isinstance(result, Failure):
                        self.failures.append(result)
                        continue
                    yield result
                    self._check_process()
        except BaseException:  # an error of the run, or a consumer that wants no more
            if self._pid != os.getpid():  # what is waited for here is in the parent
                raise
            self._supervisor = None
            handoff.abandon()
            supervisor.request_stop()
            raise
        finally:
            if self._pid == os.getpid():
                thread.join()
                self._running = None
                if self._supervisor is None:
                    supervisor.close()

    def _result(self, record: Record) -> Result | Failure:
        index, name, payload = record
        try:
            return Result(index, name, pickle.loads(payload))
        except Exception as error:  # noqa: BLE001 - a class that only the workers can import
            text = (
                f"the result cannot be read in this process: {type(error).__name__}: {error}; "
                "return plain values, or objects of a class that this process can import"
            )
            return Failure(index, name, self.spec.post.name, "result", text)

    def _stop(self) -> None:
        if self._supervisor is not None:
            self._supervisor.close()
            self._supervisor = None


def _videos(spec: PipelineSpec, inputs: Iterable[Any]) -> Source | None:
    """Return the YAML's source for other videos, where `inputs` are their paths."""
    if not isinstance(spec.source, VideoFiles) or not isinstance(inputs, Sequence) or not inputs:
        return None
    if not all(isinstance(path, str | os.PathLike) for path in inputs):
        return None
    return replace(spec.source, paths=tuple(os.fspath(path) for path in inputs))


def _start(  # noqa: PLR0913, PLR0917 - each is a fact of the run
    spec: PipelineSpec,
    source: Source,
    inputs: Iterable[Any] | None,
    stack: ExitStack,
    supervisor: Supervisor | Chain,
    batch: int,
) -> Start:
    if isinstance(inputs, Sequence) and not has_frames(source):
        listed = ListedFeed(source.entries(), len(inputs))
        return Start(listed, max_failures=failures_left(spec, len(inputs)))
    listing = ", pass a list of inputs, or do a job, which lists its inputs first"
    allowed = failures_left(spec, None, or_else="" if has_frames(source) else listing)
    rows = getattr(supervisor, "batches", (batch,))[0]
    slots = supervisor.statistics().slots[0]
    room = InFlight.of(spec, None, batch=rows, group=batch, slots=slots)
    feed = drawn_feed(source, room)
    stack.callback(feed.close)
    return Start(feed, max_failures=allowed)
