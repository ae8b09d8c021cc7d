"""`pipeline.yaml`: its models, the loader, and what is derived from them."""

from gepipe.spec.load import load, loads
from gepipe.spec.model import PipelineSpec
from gepipe.spec.stages import InferStage, PostStage, PreStage
from gepipe.spec.units import FailureLimit
from gepipe.spec.values import Backend

__all__ = [
    "Backend",
    "FailureLimit",
    "InferStage",
    "PipelineSpec",
    "PostStage",
    "PreStage",
    "load",
    "loads",
]
