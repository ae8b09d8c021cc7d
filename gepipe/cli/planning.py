"""What `gepipe plan` shows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gepipe.cli.text import count, harmless, print_out, size, spread
from gepipe.ops.plan import plan_post, plan_pre
from gepipe.pipeline.check import resolve
from gepipe.pipeline.neighbours import text
from gepipe.spec.load import load
from gepipe.spec.settled import said_by_profile

if TYPE_CHECKING:
    from gepipe.pipeline.plan import StartPlan
    from gepipe.runtime.options import SlotPlan
    from gepipe.runtime.worker import ModelInfo
    from gepipe.spec.model import PipelineSpec


def show_plan(file: str, overrides: Sequence[str], *, as_json: bool) -> None:
    """Settle a pipeline and show the result.

    Raises:
        GepipeError: The pipeline cannot run.
    """
    written = load(file, overrides)
    spec, start, info, slots = resolve(written)
    profile = dict(said_by_profile(written))
    if as_json:
        print_out(json.dumps(_facts(spec, start, info, slots) | {"profile": profile}))
        return
    for line in _lines(spec, start, info, slots):
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


def _lines(spec: PipelineSpec, start: StartPlan, info: ModelInfo, slots: SlotPlan) -> Iterator[str]:
    notes = (*start.notes, *info.notes)
    yield from spread(f"{spec.name}: {notes[0]}", notes[1:])
    yield f"processors: {start.cpus}"
    yield f"{spec.pre.name}: {count(start.pre_workers, 'worker')}, {_limit(spec.pre.timeout)}"
    for line in plan_pre(spec.pre.ops).describe():
        yield f"  {line}"
    yield f"{spec.infer.name}: {_processes(start)}, {_limit(_execution_limit(start))}"
    if start.model:
        yield f"  model {start.model}"
    for word, rows in (("takes", info.inputs), ("makes", info.outputs)):
        yield f"  {word} " + ", ".join(f"{row.name} {text(row)}" for row in rows)
    sizes = ", ".join(map(str, info.gears)) or "any"
    yield f"  batch {slots.inputs.batch}; the model takes {sizes}"
    yield f"{spec.post.name}: {count(start.post_workers, 'worker')}, {_limit(spec.post.timeout)}"
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
