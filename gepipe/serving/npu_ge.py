"""The ensemble for CANN's own backend `npu_ge`, which compiles the ONNX model as it loads it.

None of this was run on a card: each line is owed to what the backend's source code does (v2.3.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gepipe.errors import ExportError
from gepipe.models.kind import kind_of
from gepipe.models.onnxfile import read_onnx
from gepipe.serving.bundle import Files
from gepipe.serving.layout_ensemble import comment_of, ensemble_files, infer_config
from gepipe.spec.values import Backend
from gepipe.triton import config
from gepipe.triton.config import (
    DynamicBatching,
    InstanceGroup,
    ModelConfig,
    QueuePolicy,
    config_text,
)

if TYPE_CHECKING:
    from gepipe.serving.export_plan import ExportPlan
    from gepipe.spec.model import PipelineSpec

#: The script that starts the server, in the ensemble's folder, where the server does not look.
SCRIPT: Final = "start_npu_ge.sh"
NOT_RUN: Final = "For CANN's backend npu_ge (v2.3.0); not run on a card."
#: Gears that GE compiles at most.
_GEARS_MAX: Final = 100
#: From so many gears on, loading takes noticeably longer.
_GEARS_MANY: Final = 16
#: Streams of a card beyond which nothing is gained.
_STREAMS_MAX: Final = 8
#: Levels of priority, and the one of a request that states none: bulk waits for real time.
_LEVELS: Final = 2
#: What shared memory a tensor in flight takes, with what the server keeps around it.
_SHM_FACTOR: Final = 1.5
#: The opset of ONNX that the backend advises.
_OPSET: Final = 14

_START: Final = """#!/bin/sh
# Starts Triton for the pipeline {name!r}. Made by gepipe triton export.
# {not_run}
#
#   sh {script} [option of tritonserver ...]
#
# GEPIPE_PYTHON  folder of a virtual environment with gepipe, of the Python that the stub of
#                Triton's Python backend was built for: 3.10 in the images of npu_ge.
# GE_OPTIONS     options of GE, such as 'ge.aicoreNum=12|10', separated by spaces. They are read
#                from the command line only. GE_NPU_CONFIG, where it is set, replaces all of them.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
models=$(dirname -- "$here")
if [ -n "${{GEPIPE_PYTHON:-}}" ]; then
    PATH="$GEPIPE_PYTHON/bin:$PATH"
    export PATH
fi
options=
for option in ${{GE_OPTIONS:-}}; do
    options="$options --backend-config=npu_ge,$option"
done
shm=$(df -Pk /dev/shm | awk 'NR == 2 {{print $2}}')
if [ "$shm" -lt {shm_kib} ]; then
    echo "/dev/shm has $shm KiB; expected at least {shm_kib}: docker run --shm-size={shm_kib}k" >&2
    exit 1
fi
# GE writes folders where it runs, and the server would take them for models.
scratch=$(mktemp -d)
cd "$scratch"
# shellcheck disable=SC2086
exec tritonserver --model-repository="$models" --http-address=127.0.0.1 \\
    --grpc-address=127.0.0.1 --metrics-address=127.0.0.1 --disable-auto-complete-config \\
    $options "$@"
"""


def as_onnx(spec: PipelineSpec) -> PipelineSpec:
    """Return the pipeline with its ONNX model, opened by ONNX Runtime to learn its tensors.

    Raises:
        ExportError: The model is not ONNX.
    """
    infer = spec.infer
    if infer.model is None or not infer.model.is_file():
        return spec  # told by whoever opens it
    kind = kind_of(infer.model)[0]
    if kind != "onnx":
        raise ExportError(
            f"{infer.name}: {str(infer.model)!r} is no ONNX model, and npu_ge compiles the model "
            "itself: it has no way to load .om; export the .onnx that it was made of, or use "
            "--target ge"
        )
    if infer.backend.options.get("aipp"):
        raise ExportError(
            f"{infer.name}: aipp is a part of a converted model, which npu_ge does not take; "
            "leave it out, or use --target ge"
        )
    backend = Backend("onnxruntime")
    changed = infer.model_copy(update={"backend": backend, "gears": (), "timeout": None})
    stages = tuple(changed if stage.name == infer.name else stage for stage in spec.stages)
    return spec.model_copy(update={"stages": stages})


def npu_ge_files(plan: ExportPlan, version: int) -> tuple[Files, tuple[str, ...]]:
    """Return the files of the ensemble, and modules needed.

    Raises:
        ExportError: The backend cannot run the model.
    """
    _check(plan)
    files, modules = ensemble_files(plan, version)
    step = plan.model_name("infer")
    files[f"{step}/{config.FILE_NAME}"] = config_text(npu_ge_config(plan)).encode()
    files[f"{plan.name}/{SCRIPT}"] = start_text(plan).encode()
    return files, modules


def npu_ge_config(plan: ExportPlan) -> ModelConfig:
    """Return the configuration of the model itself."""
    streams = _streams(plan)
    return replace(
        infer_config(plan),
        backend="npu_ge",
        # The kind is not read; each instance is a request in flight.
        instances=InstanceGroup("KIND_MODEL", streams * len(_devices(plan))),
        batching=_batching(plan),
        parameters=_parameters(plan, streams),
        comment=comment_of(plan, NOT_RUN),
    )


def needs(plan: ExportPlan) -> tuple[str, ...]:
    """Return what the server needs beyond what the steps in Python do."""
    return (
        "CANN's backend npu_ge, and gepipe in the Python of the stub: 3.10 in the images of npu_ge",
        f"at least {_shm_kib(plan):,} KiB of /dev/shm",
    )


def warnings(plan: ExportPlan) -> Iterator[str]:
    """Yield what is worth a second look."""
    yield "not run on a card: the configuration follows the backend's source code (v2.3.0)"
    yield "npu_ge can wait for ever after an error: give every request a timeout, as client.py does"
    if plan.batch > _GEARS_MANY:
        yield f"npu_ge pads no batch, so it compiles {plan.batch} gears, which takes its time"
    for row in (*plan.inputs, *plan.outputs):
        if row.dtype in ("uint32", "uint64"):
            yield f"tensor {row.name!r} is {row.dtype}, of which npu_ge says nothing"
    assert plan.start.model is not None
    opset = read_onnx(plan.start.model).opset
    if opset > _OPSET:
        yield f"the model has opset {opset}; npu_ge advises {_OPSET}"


def start_text(plan: ExportPlan) -> str:
    """Return the script that starts the server."""
    return _START.format(name=plan.name, not_run=NOT_RUN, script=SCRIPT, shm_kib=_shm_kib(plan))


def _check(plan: ExportPlan) -> None:
    """Refuse what the backend cannot run.

    Raises:
        ExportError: Lists everything.
    """
    problems = [
        f"tensor {row.name!r} is float64, which npu_ge does not have; cast it in the model"
        for row in (*plan.inputs, *plan.outputs)
        if row.dtype == "float64"
    ]
    if plan.batch > _GEARS_MAX:
        problems.append(
            f"batches of {plan.batch}: npu_ge pads none, and GE compiles at most {_GEARS_MAX} "
            f"gears; set batch_size to {_GEARS_MAX} or less"
        )
    if plan.info.gears and plan.batch > 1:
        problems.append(
            f"the model is fixed to batches of {', '.join(map(str, plan.info.gears))}, and npu_ge "
            "pads none; export the ONNX model with an open batch axis, or set batch_size: 1"
        )
    if problems:
        raise ExportError("\n".join(f"target npu_ge: {problem}" for problem in problems))


def _batching(plan: ExportPlan) -> DynamicBatching:
    assert plan.profile.queue is not None
    levels = _LEVELS if plan.profile.priority_levels == _LEVELS else 0
    return DynamicBatching(
        # Without preferred sizes the backend runs the requests of a batch one by one.
        tuple(range(1, plan.batch + 1)),
        round((plan.spec.max_wait or 0) * 1e6),
        QueuePolicy(plan.profile.queue),
        levels,
        levels,
    )


def _parameters(plan: ExportPlan, streams: int) -> dict[str, str]:
    said = {
        # Without it the backend takes every card of the machine.
        "device_ids": ",".join(map(str, _devices(plan))),
        "device_exec_blocks": str(streams),
        # Its pages disagree on what holds where nothing is said.
        "session.ge.exec.precision_mode_v2": (
            "fp16" if plan.spec.infer.precision == "fp16" else "origin"
        ),
    }
    # In the order of the alphabet, as GE takes them.
    rows = sorted(plan.inputs, key=lambda row: row.name)
    batch = -1 if plan.batch > 1 else 1
    said["graph.ge.inputShape"] = ";".join(
        f"{row.name}:{','.join(map(str, (batch, *row.shape)))}" for row in rows
    )
    if plan.batch > 1:
        # A gear for every size that can occur: the backend pads none. A static graph would run
        # the rows of a batch one by one.
        said["graph.ge.dynamicDims"] = ";".join(
            ",".join([str(size)] * len(rows)) for size in range(1, plan.batch + 1)
        )
        said["graph.ge.dynamicNodeType"] = "1"
    else:
        said["static_model"] = "1"
    return said


def _devices(plan: ExportPlan) -> tuple[int, ...]:
    devices = plan.spec.infer.devices
    return (0,) if devices == "auto" else devices


def _streams(plan: ExportPlan) -> int:
    """Return how many requests a card works on at once."""
    instances = plan.spec.infer.instances
    return 1 if instances == "auto" else min(_STREAMS_MAX, instances)


def _shm_kib(plan: ExportPlan) -> int:
    """Return what the stubs of the steps need of /dev/shm, in KiB."""
    row = sum(spec.nbytes for spec in (*plan.inputs, *plan.outputs))
    stubs = plan.start.pre_workers + plan.start.post_workers
    return stubs * (1024 + round(_SHM_FACTOR * plan.batch * row / 1024))
