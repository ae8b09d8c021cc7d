"""Finds everything about a pipeline that can be known before the start, all at once.

Operators and models are set up in processes of their own, as in a run: the calling process loads
no inference library, and user code that crashes takes nothing along.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from gepipe.errors import GepipeError, reason_of
from gepipe.io.parquet import ParquetSink, require_pyarrow
from gepipe.ops.plan import plan_pre
from gepipe.pipeline import followers, neighbours
from gepipe.pipeline.allowance import failures_left
from gepipe.pipeline.apart import require_apart
from gepipe.pipeline.assembly import Plan, cut_reader, knows, plan, require_memory
from gepipe.pipeline.bodies import InferBody
from gepipe.pipeline.chosen import chosen_source
from gepipe.pipeline.conversion import prepare
from gepipe.pipeline.crews import pickled, worker_environment
from gepipe.pipeline.feeds import has_frames, require_frames
from gepipe.pipeline.findings import Findings, Preparation
from gepipe.pipeline.plan import plan_slots, plan_start
from gepipe.pipeline.rehearsal import rehearse
from gepipe.pipeline.startplan import StartPlan
from gepipe.runtime.body import ModelInfo
from gepipe.runtime.probe import set_up
from gepipe.spec.load import load

if TYPE_CHECKING:
    from gepipe.io.sink import Sink
    from gepipe.io.source import Source
    from gepipe.runtime.events import Role
    from gepipe.runtime.options import SlotPlan
    from gepipe.spec.model import PipelineSpec


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
        _check_legs(spec, source, found)
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


class Resolved(NamedTuple):
    """Everything that a run would settle of one model with the stages around it.

    Attributes:
        spec: The pipeline as it is run.
        start: How it starts.
        info: What its model is.
        slots: Its slots.
    """

    spec: PipelineSpec
    start: StartPlan
    info: ModelInfo
    slots: SlotPlan


def resolve_legs(planned: Plan) -> tuple[Resolved, ...]:
    """Settle everything that a run would settle, for each model.

    Raises:
        GepipeError: A model does not open, or does not fit.
    """
    legs = []
    for number, (leg, start) in enumerate(zip(planned.legs, planned.starts, strict=True)):
        info = open_model(leg, start)
        legs.append(Resolved(leg, start, info, planned.slots(number, info)))
    require_memory([leg.slots.nbytes for leg in legs])
    return tuple(legs)


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
    if spec.mids and not found.errors:
        found.attempt(lambda: cut_reader(spec, reader, 1))
    if has_frames(source):
        found.attempt(lambda: failures_left(spec, None))
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
        return f"cannot be written: {reason_of(error)}"
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return "is a device, pipe or socket; expected a regular file"
    return None


def _check_apart(spec: PipelineSpec, source: Source) -> None:
    require_frames(source, cast("Sink", spec.sink))
    path = getattr(source, "path", None)
    again = source.finite and (path is None or os.path.isfile(path))  # noqa: PTH113 - no pipe
    require_apart(spec, source, cast("Sink", spec.sink), source.entries if again else tuple)


def _check_legs(spec: PipelineSpec, source: Source | None, found: Findings) -> None:
    """Check each model with the stages around it; several share the memory."""
    if spec.mids:
        slots = []
        for number, leg in enumerate(spec.legs):
            its = Findings(input_count=found.input_count)
            slots.append(_check_stages(leg, its, known=number > 0 and knows(leg)))
            found.add(its, leg.infer.name)
        body = found.attempt(lambda: pickled(Preparation(spec.joining), spec.post.name))
        for outcome in set_up([("pre", body)], environ=worker_environment()) if body else ():
            if outcome is not None:
                found.errors += [f"{spec.post.name}: {line}" for line in str(outcome).splitlines()]
        found.attempt(lambda: require_memory([each.nbytes for each in slots if each is not None]))
    else:
        _check_stages(spec, found)
    if found.errors:
        return
    planned = found.attempt(lambda: plan(spec))  # whether several fit into a card together
    if planned is not None and source is not None and found.input_count:
        note = found.attempt(lambda: rehearse(planned, source))
        found.warnings += [note] if note else []


def _check_stages(spec: PipelineSpec, found: Findings, *, known: bool = False) -> SlotPlan | None:
    """Check a pipeline of one model; return its slots if all fits."""
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
            found.models[spec.infer.name] = found.model
        elif outcome is not None:
            found.errors += [f"{stage}: {line}" for line in str(outcome).splitlines()]
    if start is None or found.model is None:
        return None
    return _check_neighbours(spec, start, found.model, found, aipp=aipp, known=known)


def _check_neighbours(  # noqa: PLR0913 - what is compared with what
    spec: PipelineSpec,
    start: StartPlan,
    info: ModelInfo,
    found: Findings,
    *,
    aipp: bool,
    known: bool,
) -> SlotPlan | None:
    """Return the slots if all fits."""
    found.notes += [*info.notes, *_tensors(info)]
    if found.attempt(lambda: [plan_pre(spec.pre.ops).output_specs()]) is None:
        return None  # what pre makes cannot be compared
    mismatches = [
        *neighbours.input_mismatches(spec, info, aipp=aipp),
        *followers.output_mismatches(spec, info),
    ]
    found.errors += mismatches
    found.warnings += neighbours.unknown_input(spec, info)
    found.warnings += neighbours.open_size(spec, info)
    found.warnings += neighbours.batch_mismatches(spec, info)
    try:
        return plan_slots(spec, start, info, known=known)
    except GepipeError as error:
        if not mismatches:  # it would only say the same in other words
            found.errors.append(str(error))
        return None


def _tensors(info: ModelInfo) -> Iterator[str]:
    for word, rows in (("takes", info.inputs), ("makes", info.outputs)):
        yield f"model {word} " + ", ".join(f"{row.name} {neighbours.text(row)}" for row in rows)


def _infer_bodies(start: StartPlan) -> dict[int, InferBody]:
    """Return how the model is opened on each device."""
    bodies: dict[int, InferBody] = {}
    for options in start.engines:
        bodies.setdefault(options.device, InferBody(start.engine, start.model, options))
    return bodies
