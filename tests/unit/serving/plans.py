"""Export plans of made-up models, for tests that start nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gepipe.engines.engine import EngineOptions
from gepipe.pipeline.startplan import StartPlan
from gepipe.runtime.body import ModelInfo
from gepipe.serving.export_plan import ExportPlan
from gepipe.spec.load import loads
from gepipe.spec.profile import complete
from gepipe.tensors import TensorSpec
from gepipe.triton.config import Tensor

YAML = """
pipeline:
  name: tiny
  {more}
  stages:
    - name: preprocess
      ops: [decode_image, {{resize: {{size: [4, 4]}}}}, {{to_tensor: {{layout: nchw}}}}]
    - name: inference
      model: {model}
      {infer}
    - name: postprocess
      ops: [{post}]
"""
X = TensorSpec("x", "float32", (3, 4, 4))
Y = TensorSpec("y", "float32", (10,))


def plan_of(
    model: Path,
    *,
    inputs: Sequence[TensorSpec] = (X,),
    outputs: Sequence[TensorSpec] = (Y,),
    gears: tuple[int, ...] = (),
    batch: int = 8,
    engine: str = "onnxruntime",
    engines: Sequence[EngineOptions] = (EngineOptions(threads=2),),
    pre: int = 3,
    more: str = "",
    infer: str = "",
    post: str = "top_k",
    given: Tensor | None = None,
) -> ExportPlan:
    """Return a plan for a model that is not opened."""
    spec = loads(YAML.format(model=model, more=more, infer=infer, post=post))
    return ExportPlan(
        spec.name,
        spec,
        StartPlan(engine, model, tuple(engines), engine == "onnxruntime", pre, 1, 4, None, ()),
        ModelInfo(tuple(inputs), tuple(outputs), gears, (), 1),
        batch,
        tuple(inputs),
        tuple(outputs),
        {"inference": model},
        given or Tensor("IMAGE", "STRING", (1,)),
        Tensor("RESULT", "STRING", (1,)),
        complete(spec.profile),
    )


def message_of(text: str) -> Mapping[str, Any]:
    """Return a configuration as Triton's protobuf reads it."""
    from google.protobuf import json_format, text_format
    from tritonclient.grpc import model_config_pb2

    message = text_format.Parse(text, model_config_pb2.ModelConfig())
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def parameters_of(text: str) -> dict[str, str]:
    """Return the parameters of a configuration."""
    found = message_of(text).get("parameters", {})
    return {key: value["string_value"] for key, value in found.items()}
