"""What `gepipe plan` shows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gepipe.cli.text import count, harmless, print_out, size, spread
from gepipe.io.videos import VideoFiles
from gepipe.ops.plan import plan_post, plan_pre
from gepipe.pipeline.assembly import Plan, plan, stage_names
from gepipe.pipeline.chain import together
from gepipe.pipeline.check import Resolved, resolve_legs
from gepipe.pipeline.neighbours import text
from gepipe.spec.load import load
from gepipe.spec.settled import said_by_profile

if TYPE_CHECKING:
    from gepipe.pipeline.startplan import StartPlan
    from gepipe.runtime.body import ModelInfo
    from gepipe.runtime.options import SlotPlan
    from gepipe.spec.model import PipelineSpec


def show_plan(file: str, overrides: Sequence[str], *, as_json: bool) -> None:
    """Settle a pipeline and show the result.

    Raises:
        GepipeError: The pipeline cannot run.
    """
    written = load(file, overrides)
    planned = plan(written)
    legs = resolve_legs(planned)
    profile = dict(said_by_profile(written))
    if as_json:
        facts = _facts(*legs[0]) if len(legs) == 1 else _chain_facts(planned, legs)
        print_out(json.dumps(facts | {"profile": profile}))
        return
    for line in _lines(*legs[0]) if len(legs) == 1 else _chain_lines(planned, legs):
        print_out(harmless(line))
    if profile:
        said = ", ".join(f"{key} {value}" for key, value in profile.items())
        print_out(f"profile: {said}; the rest by the stages")


def _facts(
    spec: PipelineSpec, start: StartPlan, info: ModelInfo, slots: SlotPlan
) -> dict[str, Any]:
    return {
        "name": spec.name,
        "engine": start.engine,
        "model": str(start.model) if start.model else None,
        "devices": sorted({options.device for options in start.engines}),
        "cpus": start.cpus,
        "workers": {
            "pre": start.pre_workers,
            "infer": len(start.engines),
            "post": start.post_workers,
        },
        "engine_threads": start.engines[0].threads,
        "batch": slots.inputs.batch,
        "depth": slots.depth,
        "slot_nbytes": {"input": slots.inputs.slot_nbytes, "output": slots.outputs.slot_nbytes},
        "shared_nbytes": slots.nbytes,
        "inputs": [_tensor(row) for row in slots.inputs.tensors],
        "outputs": [_tensor(row) for row in slots.outputs.tensors],
        "gears": info.gears,
        "timeouts_s": {
            "pre": spec.pre.timeout,
            "infer": start.timeout_s,
            "post": spec.post.timeout,
        },
        "on_error": spec.on_error,
        "passes": {"pre": plan_pre(spec.pre.ops).describe(), "post": _post(spec)},
        "notes": [*start.notes, *info.notes],
    }


def _chain_facts(planned: Plan, legs: Sequence[Resolved]) -> dict[str, Any]:
    """Return the facts of each leg, and what they have in common."""
    models = [_facts(*leg) for leg in legs]
    own = ("name", "cpus", "on_error")
    return {
        **{key: models[0][key] for key in own},
        "engine": planned.engine,
        "models": {
            leg.spec.infer.name: {key: value for key, value in facts.items() if key not in own}
            for leg, facts in zip(legs, models, strict=True)
        },
        "workers": {"gather": planned.join_workers},
        "passes": {"gather": _joining(planned)},
        "shared_nbytes": sum(leg.slots.nbytes for leg in legs),
        "notes": [*planned.notes, *_told_by(legs)],
    }


def _chain_lines(planned: Plan, legs: Sequence[Resolved]) -> Iterator[str]:
    """Show each model with the stages around it, in the order of the data."""
    names = stage_names(planned.spec)
    first, *others = (*planned.notes, *_told_by(legs))
    yield from spread(f"{planned.spec.name}: {first}", others)
    yield (
        f"processors: {legs[0].start.cpus}, which the {len(legs)} models and all workers share: "
        "whoever has more to do gets more"
    )
    yield from _decoder_lines(planned.spec)
    for number, leg in enumerate(legs):
        pre = names[number - 1][1] if number else leg.spec.pre.name
        yield from _stage_lines(leg, pre, names[number][0])
    workers = count(planned.join_workers, "worker")
    yield f"{names[-1][1]}: {workers}, {_limit(planned.spec.post.timeout)}"
    for line in _joining(planned):
        yield f"  {line}"
    yield f"slots of all models: {size(sum(leg.slots.nbytes for leg in legs))} of shared memory"


def _told_by(legs: Sequence[Resolved]) -> tuple[str, ...]:
    return together({leg.spec.infer.name: leg.info.notes for leg in legs})


def _joining(planned: Plan) -> list[str]:
    if planned.spec.splitters[0].single:
        return ["the part's result is added to the item's"]
    return [op.title for op in planned.spec.joining] or ["gather"]


def _lines(spec: PipelineSpec, start: StartPlan, info: ModelInfo, slots: SlotPlan) -> Iterator[str]:
    notes = (*start.notes, *info.notes)
    yield from spread(f"{spec.name}: {notes[0]}", notes[1:])
    yield f"processors: {start.cpus}"
    yield from _decoder_lines(spec)
    yield from _stage_lines(Resolved(spec, start, info, slots), spec.pre.name, spec.post.name)


def _decoder_lines(spec: PipelineSpec) -> Iterator[str]:
    """Show what decodes videos, where they are the source."""
    source = spec.source
    if not isinstance(source, VideoFiles):
        return
    who = "a process for a video, one for the next" if source.finite else "a process a source"
    threads = count(source.threads, "thread") if source.threads else "a thread a processor"
    room = f"at most {size(source.memory_nbytes)} of shared memory for frames"
    yield f"decoders: {who}, {threads} each; {room}"


def _stage_lines(leg: Resolved, pre: str, post: str) -> Iterator[str]:
    spec, start, info, slots = leg
    yield f"{pre}: {count(start.pre_workers, 'worker')}, {_limit(spec.pre.timeout)}"
    for line in plan_pre(spec.pre.ops).describe():
        yield f"  {line}"
    yield f"{spec.infer.name}: {_processes(start)}, {_limit(_execution_limit(start))}"
    if start.model:
        yield f"  model {start.model}"
    for word, rows in (("takes", info.inputs), ("makes", info.outputs)):
        yield f"  {word} " + ", ".join(f"{row.name} {text(row)}" for row in rows)
    sizes = ", ".join(map(str, info.gears)) or "any"
    own = ", all of one size, which may be another each time" * slots.inputs.is_open
    if slots.inputs.is_open and slots.inputs.batch == 1:
        own = ", each item at its own size"
    yield f"  batch {slots.inputs.batch}{own}; the model takes {sizes}"
    yield f"{post}: {count(start.post_workers, 'worker')}, {_limit(spec.post.timeout)}"
    for line in _post(spec):
        yield f"  {line}"
    yield (
        f"slots: {slots.depth} a link, {size(slots.inputs.slot_nbytes)} of inputs and "
        f"{size(slots.outputs.slot_nbytes)} of outputs each; "
        f"{size(slots.nbytes)} of shared memory in all"
    )


def _processes(start: StartPlan) -> str:
    text = count(len(start.engines), "process", "processes")
    if start.on_cpu:
        return f"{text} on the CPU, {count(start.engines[0].threads, 'thread')} each"
    devices = sorted({options.device for options in start.engines})
    plural = "s" * (len(devices) > 1)
    return f"{text} on device{plural} {', '.join(map(str, devices))}"


def _execution_limit(start: StartPlan) -> float | None:
    own = start.engines[0].timeout_s  # of an engine that keeps time; then the other only kills
    return start.timeout_s if own is None else own


def _post(spec: PipelineSpec) -> list[str]:
    return plan_post(spec.post.ops).describe()


def _limit(seconds: float | None) -> str:
    return "no limit" if seconds is None else f"limit {seconds:g} s"


def _tensor(spec: Any) -> dict[str, Any]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": spec.shape}
