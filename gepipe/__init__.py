"""Inference pipelines in three stages, linked by double buffers in shared memory.

Importing this package is cheap: what it offers is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gepipe.errors import (
        BackendError,
        ClosedError,
        ConfigError,
        GepipeError,
        InternalError,
        Interrupted,
        ItemError,
        ModelLoadError,
        PluginError,
        StageError,
        TensorMismatchError,
        WorkerError,
        WorkerStartError,
    )
    from gepipe.io.failures import Failure
    from gepipe.ops.op import Op
    from gepipe.ops.parts import Part, Splitter
    from gepipe.pipeline.pipeline import Pipeline, Result
    from gepipe.tensors import TensorSpec

_HOME = {
    "Failure": "gepipe.io.failures",
    "Op": "gepipe.ops.op",
    "Part": "gepipe.ops.parts",
    "Pipeline": "gepipe.pipeline.pipeline",
    "Result": "gepipe.pipeline.pipeline",
    "Splitter": "gepipe.ops.parts",
    "TensorSpec": "gepipe.tensors",
}

__all__ = [
    "BackendError",
    "ClosedError",
    "ConfigError",
    "Failure",
    "GepipeError",
    "InternalError",
    "Interrupted",
    "ItemError",
    "ModelLoadError",
    "Op",
    "Part",
    "Pipeline",
    "PluginError",
    "Result",
    "Splitter",
    "StageError",
    "TensorMismatchError",
    "TensorSpec",
    "WorkerError",
    "WorkerStartError",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME.get(name, "gepipe.errors")), name)


def __dir__() -> list[str]:
    return __all__
