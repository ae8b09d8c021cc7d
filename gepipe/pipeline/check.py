"""Finds everything about a pipeline that can be known before the start, all at once.

Operators and models are set up in processes of their own, as in a run: the calling process loads
no inference library, and user code that crashes takes nothing along.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gepipe.errors import ConfigError, GepipeError
from gepipe.io.parquet import ParquetSink, require_pyarrow
from gepipe.ops.plan import plan_pre
from gepipe.pipeline import neighbours
from gepipe.pipeline.apart import require_apart
from gepipe.pipeline.bodies import InferBody
from gepipe.pipeline.conversion import prepare
from gepipe.pipeline.crews import pickled, worker_environment
from gepipe.pipeline.job import chosen_source
from gepipe.pipeline.plan import StartPlan, plan_slots, plan_start
from gepipe.pipeline.trial import Trial
from gepipe.runtime.probe import set_up
from gepipe.runtime.worker import ModelInfo
from gepipe.spec.load import load

if TYPE_CHECKING:
    from gepipe.io.sink import Sink
    from gepipe.io.source import Source
    from gepipe.ops.op import Op
    from gepipe.runtime.events import Role
    from gepipe.runtime.options import SlotPlan
    from gepipe.spec.model import PipelineSpec


@dataclass
class Preparation:
    """Sets a stage's operators up, as its workers will.

    Attributes:
        ops: The operators.
    """

    ops: Sequence[Op]

    def setup(self) -> None:
        """Set up every operator.

        Raises:
            ConfigError: Lists what is wrong with each, a line each.
        """
        problems = []
        for op in self.ops:
            try:
                op.setup()
            except GepipeError as error:
                problems.append(f"{op.title}: {error}")
            except BaseException as error:  # noqa: BLE001 - user code may raise anything
                problems.append(f"{op.title}: {type(error).__name__}: {error}")
        if problems:
            raise ConfigError("\n".join(problem.replace("\n", " ") for problem in problems))


@dataclass
class Findings:
    """What a check found.

    Attributes:
        errors: What would stop a run, or make every item fail.
        warnings: What is worth a second look.
        notes: What will be used: inputs, engine, model.
        input_count: Inputs of the source, where they can be counted.
        model: What the model takes and makes, once it is open.
    """

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    input_count: int | None = None
    model: ModelInfo | None = None

    def attempt(self, action: Callable[[], Any]) -> Any:
        """Return what `action` returns; if it fails, note why and return None."""
        try:
            return action()
        except GepipeError as error:
            self.errors += [line for line in str(error).splitlines() if line not in self.errors]
            return None


def check(
    path: str | os.PathLike[str], overrides: Sequence[str] = (), inputs: Sequence[str] = ()
) -> Findings:
    """Check a pipeline file.

    Args:
        path: The YAML file.
        overrides: Changes such as `preprocess.batch_size=16`.
        inputs: Paths that replace those of the YAML's source.
    """
    found = Findings()
    spec = found.attempt(lambda: load(path, overrides))
    if spec is not None:
        source = _check_source(spec, inputs, found)
        _check_sink(spec, inputs, found)
        _check_stages(spec, source, found)
    return found


def open_model(spec: PipelineSpec, start: StartPlan) -> ModelInfo:
    """Open the model in processes of their own, on every device, and close it again.

    Returns:
        What it is on the first.

    Raises:
        GepipeError: It does not open.
    """
    bodies = [pickled(body, spec.infer.name) for body in _infer_bodies(start).values()]
    said = set_up([("infer", body) for body in bodies], environ=worker_environment())
    infos = []
    for info in said:
        if not isinstance(info, ModelInfo):
            assert info is not None
            raise info
        infos.append(info)
    return infos[0]


def resolve(spec: PipelineSpec) -> tuple[PipelineSpec, StartPlan, ModelInfo, SlotPlan]:
    """Settle everything that a run of the pipeline would settle.

    Returns:
        The pipeline as it is run, with how it starts, what its model is, and its slots.

    Raises:
        GepipeError: The model does not open, or does not fit.
    """
    spec = prepare(spec)
    start = plan_start(spec)
    info = open_model(spec, start)
    return spec, start, info, plan_slots(spec, start, info)


def _check_source(spec: PipelineSpec, inputs: Sequence[str], found: Findings) -> Source | None:
    """Return the source if its inputs can be looked at before the start."""
    if spec.source is None and not inputs:
        found.warnings.append("there is no source; give the inputs with --input")
        return None
    source: Source | None = found.attempt(lambda: chosen_source(spec, inputs))
    if source is None:
        return None
    reader = found.attempt(lambda: source.reader)
    if reader is None:
        return None
    found.errors += neighbours.undecoded_source(spec, reader)
    if not source.finite or getattr(source, "path", "") == "-":
        found.notes.append("inputs: cannot be counted before the start")
        return None
    found.input_count = found.attempt(lambda: sum(1 for _ in source.entries()))
    if found.input_count is None:
        return None
    found.notes.append(f"inputs: {found.input_count:,}")
    return source


def _check_sink(spec: PipelineSpec, inputs: Sequence[str], found: Findings) -> None:
    if spec.sink is None:
        found.warnings.append("there is no sink; say where the results go with --output")
        return
    path = Path(spec.sink.path)
    if (problem := _special(path)) is not None:
        found.errors.append(f"sink: {str(path)!r} {problem}")
    elif path.is_dir():
        found.errors.append(f"sink: {str(path)!r} is a folder; expected a file")
    elif path.exists() and not os.access(path, os.W_OK):
        found.errors.append(f"sink: {str(path)!r} cannot be written; check its permissions")
    else:
        folder = path.parent
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not folder.is_dir():
            found.errors.append(f"sink: {str(folder)!r} is a file; expected a folder")
        elif not os.access(folder, os.W_OK | os.X_OK):
            found.errors.append(f"sink: nothing can be written to {str(folder)!r}")
    if isinstance(spec.sink, ParquetSink):
        found.attempt(require_pyarrow)
    if spec.source is not None or inputs:
        with suppress(GepipeError):  # told where the source is checked
            source = chosen_source(spec, inputs)
            found.attempt(lambda: _check_apart(spec, source))


def _special(path: Path) -> str | None:
    """Say why a path can be no output although its folder can be written; None if it can."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink() and not Path(os.path.realpath(path)).parent.is_dir():
            return f"is a link into the folder {os.path.realpath(path)!r}, which does not exist"
        return None
    except NotADirectoryError:
        return None  # told of the folder
    except (OSError, ValueError) as error:  # a link to itself, a name too long, a NUL byte
        return f"cannot be written: {(getattr(error, 'strerror', None) or str(error)).lower()}"
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return "is a device, pipe or socket; expected a regular file"
    return None


def _check_apart(spec: PipelineSpec, source: Source) -> None:
    path = getattr(source, "path", None)
    again = source.finite and (path is None or os.path.isfile(path))  # noqa: PTH113 - no pipe
    require_apart(spec, source, cast("Sink", spec.sink), source.entries if again else tuple)


def _check_stages(spec: PipelineSpec, source: Source | None, found: Findings) -> None:
    aipp = bool(spec.infer.backend.options.get("aipp"))
    prepared: PipelineSpec | None = found.attempt(lambda: prepare(spec))
    spec = prepared or spec
    start = None
    if prepared is not None:
        start = found.attempt(lambda: plan_start(spec, thorough=True))
    workers: list[tuple[Role, bytes]] = []
    stages: list[str] = []

    def add(role: Role, stage: str, make: Callable[[], bytes]) -> None:
        body = found.attempt(make)
        if body is not None:
            workers.append((role, body))
            stages.append(stage)

    bodies = {} if start is None else _infer_bodies(start)
    if start is not None:
        found.notes += start.notes
        for device, body in bodies.items():
            name = f"{spec.infer.name}: device {device}" if len(bodies) > 1 else spec.infer.name
            add("infer", name, partial(pickled, body, spec.infer.name))
    add("pre", spec.pre.name, lambda: pickled(Preparation(spec.pre.ops), spec.pre.name))
    add("post", spec.post.name, lambda: pickled(Preparation(spec.post.ops), spec.post.name))
    for stage, outcome in zip(stages, set_up(workers, environ=worker_environment()), strict=True):
        if isinstance(outcome, ModelInfo):
            found.model = found.model or outcome
        elif outcome is not None:
            found.errors += [f"{stage}: {line}" for line in str(outcome).splitlines()]
    if start is not None and found.model is not None:
        slots = _check_neighbours(spec, start, found.model, found, aipp=aipp)
        if slots is not None and source is not None and found.input_count and not found.errors:
            found.attempt(lambda: _try_inputs(spec, source, slots))


def _check_neighbours(
    spec: PipelineSpec, start: StartPlan, info: ModelInfo, found: Findings, *, aipp: bool
) -> SlotPlan | None:
    """Return the slots if all fits."""
    found.notes += [*info.notes, *_tensors(info)]
    if found.attempt(lambda: [plan_pre(spec.pre.ops).output_specs()]) is None:
        return None  # what pre makes cannot be compared
    mismatches = [
        *neighbours.input_mismatches(spec, info, aipp=aipp),
        *neighbours.output_mismatches(spec, info),
    ]
    found.errors += mismatches
    found.warnings += neighbours.unknown_input(spec, info)
    found.warnings += neighbours.open_size(spec, info)
    found.warnings += neighbours.batch_mismatches(spec, info)
    try:
        return plan_slots(spec, start, info)
    except GepipeError as error:
        if not mismatches:  # it would only say the same in other words
            found.errors.append(str(error))
        return None


def _try_inputs(spec: PipelineSpec, source: Source, slots: SlotPlan) -> None:
    trial = Trial.of(spec, source, slots.inputs)
    body = pickled(trial, spec.pre.name)
    (outcome,) = set_up([("pre", body)], environ=worker_environment())
    if isinstance(outcome, GepipeError):
        raise ConfigError(f"{spec.pre.name}: {outcome}")


def _tensors(info: ModelInfo) -> Iterator[str]:
    for word, rows in (("takes", info.inputs), ("makes", info.outputs)):
        yield f"model {word} " + ", ".join(f"{row.name} {neighbours.text(row)}" for row in rows)


def _infer_bodies(start: StartPlan) -> dict[int, InferBody]:
    """Return how the model is opened on each device."""
    bodies: dict[int, InferBody] = {}
    for options in start.engines:
        bodies.setdefault(options.device, InferBody(start.engine, start.model, options))
    return bodies
