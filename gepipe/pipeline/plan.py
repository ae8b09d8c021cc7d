"""Settles what the YAML leaves open: engine, devices, workers, threads, batch, slots, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from gepipe import machine, plugins
from gepipe.engines.engine import EngineOptions
from gepipe.engines.lengths import Lengths
from gepipe.errors import BackendError, ConfigError, TensorMismatchError
from gepipe.ops.plan import plan_pre
from gepipe.ops.text import Tokenize
from gepipe.pipeline.fit import fit_devices
from gepipe.pipeline.neighbours import input_mismatches
from gepipe.pipeline.rows import input_rows, row_batch
from gepipe.pipeline.startplan import StartPlan
from gepipe.runtime.memory import SlotLayout
from gepipe.runtime.options import SlotPlan
from gepipe.spec.settled import wished_batch
from gepipe.tensors import TensorSpec, Variants

if TYPE_CHECKING:
    from gepipe.runtime.body import ModelInfo
    from gepipe.spec.model import PipelineSpec

#: Engines by the ending of the model file, for `backend: auto`.
_ENGINE_OF: Final = {".onnx": "onnxruntime", ".om": "ge"}
#: Rows of a batch where neither the YAML nor the model says. On a CPU more rows gain nothing, and
#: fewer fit the cache better.
_BATCH: Final = 8
_CPU_BATCH: Final = 4
#: Largest model, in bytes, of which every core gets a session of its own: one thread a session
#: wastes no time on waiting for others. Of a larger one there is a single session.
_SMALL_MODEL: Final = 128 << 20
_SESSIONS_MAX: Final = 8
#: Memory of the slots that pre workers have beside the double buffer, where a batch is one item.
_SPARE_NBYTES: Final = 256 << 20
#: Share of the available memory that slots may take.
MEMORY_SHARE: Final = 0.8
#: An engine that keeps time itself is killed only if it does not even manage that.
_KILL_FACTOR: Final = 2
_KILL_S: Final = 30.0


def plan_start(spec: PipelineSpec, cpus: int | None = None, *, thorough: bool = False) -> StartPlan:
    """Choose engine, devices, workers and threads.

    Args:
        spec: The pipeline.
        cpus: Processors to count on; by default what affinity and cgroup allow.
        thorough: Look at the memory of devices also where there is nothing to choose or to add
            up, and each process finds out by itself what it lacks.

    Raises:
        ConfigError: There is no model, or no engine for it.
        PluginError: The engine does not import.
        BackendError: The devices cannot be used, or the model does not fit.
    """
    cpus = cpus or machine.cpu_count()
    infer = spec.infer
    name = engine_of(spec)
    engine = plugins.load("engines", name)
    on_cpu = bool(getattr(engine, "on_cpu", False))
    if infer.model is not None and not infer.model.is_file():
        raise ConfigError(
            f"{infer.name}: no such model file: {str(infer.model)!r}; set `model:` of that stage, "
            "or for a ready pipeline bring its model with `gepipe samples fetch NAME`"
        )
    devices: Sequence[int] = (
        infer.devices if infer.devices != "auto" else _all_devices(engine, spec)
    )
    instances = _instances(spec, cpus, on_cpu=on_cpu)
    most = getattr(engine, "max_instances", instances)
    if instances > most:
        raise ConfigError(
            f"{infer.name}: instances is {instances}, but engine {name!r} takes at most {most} "
            "processes on one device; use fewer"
        )
    room: tuple[str, ...] = ()
    if name == "ge" and infer.model is not None and (thorough or instances * len(devices) > 1):
        devices, room = fit_devices(spec, infer.model, devices, instances)
    where = ""
    if not on_cpu and len(set(devices)) > 1:
        where = f" on devices {', '.join(map(str, sorted(set(devices))))}"
    chosen = ", chosen by the model's ending" * (infer.backend.name == "auto")
    notes = [f"engine {name}{where}{chosen}", *room]
    timeout_s = infer.timeout
    if on_cpu:
        ignored = []
        if infer.devices != "auto":
            ignored.append("devices")
            devices = (0,)
        if timeout_s is not None and infer.backend.name == "auto":
            ignored.append("timeout")
            timeout_s = None
        if ignored:
            verb = "is" if len(ignored) == 1 else "are"
            notes.append(f"{' and '.join(ignored)} {verb} for accelerators: ignored on the CPU")
    threads = 1
    if on_cpu:
        threads = max(1, cpus // instances)
    pre = spec.pre.threads
    if pre == "auto":
        pre = _pre_workers(cpus, len(devices) * instances, on_cpu=on_cpu)
    post = spec.post.stream_count
    if post == "auto":
        post = 1 if cpus < 8 else 2
    made, variants = _made(spec)
    options = tuple(
        EngineOptions(
            device=device,
            threads=threads,
            batch_size=0 if spec.pre.batch_size == "auto" else spec.pre.batch_size,
            precision=infer.precision,
            gears=tuple(infer.gears),
            timeout_s=timeout_s,
            made=made,
            variants=variants,
            lengths=lengths_of(spec),
            extra=dict(infer.backend.options),
        )
        for device in devices
        for _ in range(instances)
    )
    if timeout_s is not None and getattr(engine, "keeps_time", False):
        timeout_s = _KILL_FACTOR * timeout_s + _KILL_S
    return StartPlan(name, infer.model, options, on_cpu, pre, post, cpus, timeout_s, tuple(notes))


def _made(spec: PipelineSpec) -> tuple[TensorSpec | None, Variants | None]:
    """Return what pre makes of an item, and at most; None if that is not known before the run."""
    program = plan_pre(spec.pre.ops)
    try:
        made, variants = program.output_specs(), program.variants()
    except ConfigError:  # told where it is compared with the model
        return None, None
    bounded = variants is not None and variants.is_bounded
    return made, variants if bounded and made is not None and not made.is_static else None


def lengths_of(spec: PipelineSpec) -> Lengths | None:
    """Return the lengths that batches of texts are executed at; None where there is one only."""
    last = spec.pre.ops[-1] if spec.pre.ops else None
    if not isinstance(last, Tokenize) or len(last.steps) == 1:
        return None
    return Lengths(last.names["attention_mask"], last.steps)


def _all_devices(engine: Any, spec: PipelineSpec) -> Sequence[int]:
    """Return the devices that an engine sees, or its only one."""
    visible = getattr(engine, "visible_devices", None)
    return (visible(spec.infer.backend.options) or (0,)) if visible is not None else (0,)


def engine_of(spec: PipelineSpec) -> str:
    """Return the registered name of the engine that runs the model.

    Raises:
        ConfigError: There is no model to choose by, or no engine for it.
    """
    infer = spec.infer
    known = plugins.names("engines")
    name = infer.backend.name
    if name == "auto":
        if infer.model is None:
            raise ConfigError(f"{infer.name}: there is no model; set `model:` of that stage")
        suffix = infer.model.suffix.lower()
        if suffix not in _ENGINE_OF:
            raise ConfigError(
                f"{infer.name}: no engine is known for {str(infer.model)!r}; expected a file "
                f"ending in {' or '.join(_ENGINE_OF)}, or `backend:` with one of {', '.join(known)}"
            )
        name = _ENGINE_OF[suffix]
    if name not in known:
        raise ConfigError(
            f"{infer.name}: engine {name!r} is not installed; installed: {', '.join(known)}"
        )
    return name


def _instances(spec: PipelineSpec, cpus: int, *, on_cpu: bool) -> int:
    if spec.infer.instances != "auto":
        return spec.infer.instances
    model = spec.infer.model
    if not on_cpu or model is None or model.stat().st_size > _SMALL_MODEL:
        return 1
    return min(cpus, _SESSIONS_MAX)


def _pre_workers(cpus: int, infer_workers: int, *, on_cpu: bool) -> int:
    """Choose the number of pre workers, each of which can keep one processor busy.

    On a CPU they share the processors with the model: whoever has less to do waits for the other.
    """
    if on_cpu:
        return cpus
    return min(cpus, max(2, cpus - infer_workers - 1))


def plan_slots(
    spec: PipelineSpec, start: StartPlan, info: ModelInfo, *, known: bool = False
) -> SlotPlan:
    """Lay out the slots for an open model.

    Args:
        spec: The pipeline.
        start: The plan so far: each infer worker has double buffers of its own.
        info: What the model says of itself.
        known: Whether the source tells the shape of each item, so that those of one shape are
            batched. Otherwise items of shapes of their own go through the model one by one.

    Raises:
        ConfigError: No item that pre makes can fit the model, or it may make too large ones.
        TensorMismatchError: An extent of a tensor cannot be known.
        BackendError: The slots do not fit into memory.
    """
    batch = spec.pre.batch_size
    if (wished := wished_batch(spec)) is not None:
        batch = _batch_that_holds(info.gears, wished)
    elif batch == "auto":
        batch = _best_batch(info.gears, _CPU_BATCH if start.on_cpu else _BATCH)
    for mismatch in input_mismatches(spec, info):
        raise ConfigError(mismatch)
    rows = input_rows(spec, info)
    # A batch in flight keeps its slots beside the two halves of the double buffer.
    depth = (spec.depth + info.in_flight - 1) * len(start.engines)
    if rows.is_open and not known:
        batch = row_batch(spec)
        # Each pre worker fills a batch by itself; of large ones, a few have to do.
        both = sum(rows.largest) + sum(info.largest)
        depth += min(start.pre_workers, max(1, _SPARE_NBYTES // max(both, 1)))
    for row in info.outputs:
        if not row.is_static and not info.largest:
            raise TensorMismatchError(
                f"{spec.infer.name}: output {row} has extents that depend on the input; expected "
                "known ones"
            )
    outputs = SlotLayout.of(info.outputs, batch, info.largest)
    plan = SlotPlan(SlotLayout.of(rows.specs, batch, rows.largest), outputs, depth)
    available = machine.available_memory()
    if plan.nbytes > MEMORY_SHARE * available:
        raise BackendError(
            f"slots need {plan.nbytes / 2**30:.2f} GiB ({depth} a link, {batch} rows each), "
            f"but only {available / 2**30:.2f} GiB of memory are available; "
            f"use a smaller {'max_side' if rows.is_open else 'batch_size'} or depth"
        )
    return plan


def _best_batch(gears: Sequence[int], wanted: int) -> int:
    if not gears:
        return wanted
    largest = max(gears)
    return largest * -(-wanted // largest) if len(gears) == 1 else largest


def _batch_that_holds(gears: Sequence[int], wanted: int) -> int:
    """Return the smallest batch without padding that holds so many rows."""
    if not gears:
        return wanted
    fitting = [gear for gear in gears if gear >= wanted]
    return min(fitting) if fitting else max(gears) * -(-wanted // max(gears))
