"""The layout of four models: pre and post in Python around the model, and the ensemble of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gepipe.errors import ExportError
from gepipe.models.convert import WEIGHTS
from gepipe.models.onnxfile import read_onnx
from gepipe.serving.bundle import Bundle, Files, make_bundle
from gepipe.serving.export_plan import ExportPlan, tensor_of
from gepipe.serving.itemmeta import META
from gepipe.spec.chain import Stage
from gepipe.triton import config
from gepipe.triton.config import (
    InstanceGroup,
    ModelConfig,
    Step,
    Tensor,
    config_text,
)

#: Devices of one instance: a process of the server's can take some 2,500 requests a second.
_PLACES_MAX: Final = 8
_META: Final = Tensor(META, "STRING", (1,))
#: Names of the ensemble's own tensors; none can be that of a tensor that clients see.
_META_WIRE: Final = "meta"

_MODEL_PY: Final = '''"""{what} of the pipeline {name!r}, for Triton; made by gepipe."""

try:
    from {module} import {cls} as TritonPythonModel
except (ImportError, SyntaxError) as error:
    import sys

    raise ImportError(
        f"this model needs gepipe and Python 3.10 or newer; {{sys.executable}} is Python "
        f"{{sys.version.split()[0]}} and cannot import it: {{error}}; install it there: "
        "pip install gepipe 'numpy<2'"
    ) from error
'''


def ensemble_files(plan: ExportPlan, version: int) -> tuple[Files, tuple[str, ...]]:
    """Return the files of the four models, by their path in the repository, and modules needed."""
    pre, post = bundle_of(plan, "pre"), bundle_of(plan, "post")
    files: Files = {}
    for role, bundle, text in (
        ("pre", pre, config_text(pre_config(plan))),
        ("post", post, config_text(post_config(plan))),
    ):
        step = plan.model_name(role)
        files[f"{step}/{config.FILE_NAME}"] = text.encode()
        files[f"{step}/{version}/model.py"] = step_code(plan, role)
        files |= {f"{step}/{version}/{name}": data for name, data in bundle.files.items()}
    step = plan.model_name("infer")
    files[f"{step}/{config.FILE_NAME}"] = config_text(infer_config(plan)).encode()
    files |= {
        f"{step}/{version}/{name}": data for name, data in model_files(plan.start.model).items()
    }
    files[f"{plan.name}/{config.FILE_NAME}"] = config_text(top_config(plan)).encode()
    # The server wants a folder of a version, and Git keeps no empty one.
    files[f"{plan.name}/{version}/.keep"] = b""
    return files, tuple(sorted({*pre.modules, *post.modules}))


def bundle_of(plan: ExportPlan, role: str) -> Bundle:
    """Return the pipeline with the operators of one step only."""

    def of(stage: Stage) -> Stage:
        if stage.role in ("infer", role):
            return stage
        return stage.model_copy(update={"ops": ()})

    stages = tuple(of(stage) for stage in plan.spec.stages)
    return make_bundle(plan.spec.model_copy(update={"stages": stages}))


def step_code(plan: ExportPlan, role: str) -> bytes:
    """Return `model.py` of a step in Python."""
    cls = {"pre": "Preprocess", "post": "Postprocess"}[role]
    return model_code(plan, cls, f"gepipe.serving.{cls.lower()}")


def model_code(plan: ExportPlan, cls: str, module: str) -> bytes:
    """Return the text of a `model.py` that is a class of gepipe's."""
    return _MODEL_PY.format(what=cls, name=plan.name, cls=cls, module=module).encode()


def model_files(model: Path | None) -> Files:
    """Return a model's files by their names in a folder of its own."""
    if model is None:
        return {}
    files: Files = {model_name_of(model): model}
    if model.suffix.lower() == ".onnx":
        for name in read_onnx(model).external:
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise ExportError(
                    f"{model}: has weights in {name!r}, outside its folder; save it with its "
                    "weights beside it"
                )
            files[name] = model.parent / name
    else:
        weights = sorted((model.parent / WEIGHTS).glob("*"))
        files |= {f"{WEIGHTS}/{path.name}": path for path in weights}
    return files


def model_name_of(model: Path) -> str:
    """Return what a model's file is called in a folder of its own."""
    return f"model{model.suffix.lower()}"


def comment_of(plan: ExportPlan, *more: str) -> Sequence[str]:
    """Return the head of every configuration; by its first line a later export knows its own."""
    return (f"Made by gepipe of the pipeline {plan.name!r}; a new export replaces it.", *more)


def pre_config(plan: ExportPlan) -> ModelConfig:
    """Return the configuration of the step before the model.

    One instance, which takes every request at once and has worker processes of its own: its queue
    has a bound and two classes, and the server's batcher, which may sleep while requests wait, is
    left out.
    """
    return ModelConfig(
        plan.batch,
        [plan.given],
        [*(tensor_of(row) for row in plan.inputs), _META],
        backend="python",
        instances=InstanceGroup("KIND_CPU", 1),
        parameters={
            "max_queue_size": str(plan.profile.queue),
            "workers": str(plan.start.pre_workers),
        },
        comment=comment_of(plan),
    )


def infer_config(plan: ExportPlan) -> ModelConfig:
    """Return the configuration of the model itself.

    One instance works on several devices, so that what waits goes to whichever is free.
    """
    return ModelConfig(
        plan.batch,
        [tensor_of(row, taken=True) for row in plan.inputs],
        [tensor_of(row) for row in plan.outputs],
        backend="ge",
        instances=InstanceGroup("KIND_MODEL", -(-len(plan.start.engines) // _PLACES_MAX)),
        parameters=_engine_parameters(plan),
        default_model_filename=model_name_of(plan.start.model) if plan.start.model else "",
        comment=comment_of(plan),
    )


def _engine_parameters(plan: ExportPlan) -> dict[str, str]:
    """Return what the backend is told; see `gepipe.serving.settings`."""
    first = plan.start.engines[0]
    said = {
        "engine": plan.start.engine,
        "stage": plan.spec.infer.name,
        "precision": first.precision,
        # The backend forms the batches: the server's batcher may sleep while requests wait.
        "max_queue_size": str(plan.profile.queue),
    }
    if plan.spec.max_wait:
        said["max_wait"] = f"{plan.spec.max_wait * 1000:g}ms"
    if plan.start.on_cpu:
        said["threads"] = str(first.threads)
    else:
        said["device_ids"] = ",".join(str(each) for each in _devices(plan))
    each = len(plan.start.engines) // len(_devices(plan))
    if each > 1:
        said["instances"] = str(each)
    if first.timeout_s is not None:
        said["timeout"] = f"{first.timeout_s * 1000:g}ms"
    if first.gears:
        said["gears"] = ",".join(map(str, first.gears))
    if first.extra:
        said["engine_options"] = json.dumps(dict(first.extra), sort_keys=True)
    return said


def _devices(plan: ExportPlan) -> list[int]:
    return list(dict.fromkeys(options.device for options in plan.start.engines))


def post_config(plan: ExportPlan) -> ModelConfig:
    """Return the configuration of the step behind the model: one instance, as before it."""
    return ModelConfig(
        plan.batch,
        [*(tensor_of(row, taken=True) for row in plan.outputs), _META],
        [plan.made],
        backend="python",
        instances=InstanceGroup("KIND_CPU", 1),
        parameters={"workers": str(plan.start.post_workers)},
        comment=comment_of(plan),
    )


def top_config(plan: ExportPlan) -> ModelConfig:
    """Return the configuration of the ensemble."""
    inputs = {row.name: f"input.{row.name}" for row in plan.inputs}
    outputs = {row.name: f"output.{row.name}" for row in plan.outputs}
    given, made = plan.given.name, plan.made.name
    return ModelConfig(
        plan.batch,
        [plan.given],
        [plan.made],
        steps=[
            Step(plan.model_name("pre"), {given: given}, {**inputs, META: _META_WIRE}),
            Step(plan.model_name("infer"), inputs, outputs),
            Step(plan.model_name("post"), {**outputs, META: _META_WIRE}, {made: made}),
        ],
        comment=comment_of(plan),
    )
