"""Triton's backend `ge`: `.om` models on Ascend NPUs, or `.onnx` models on the CPU.

    backend: "ge"

Everything is in the package gepipe, which the Python of the server's stub must have.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any


class TritonPythonModel:
    """One instance of a model."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """Fill in what config.pbtxt leaves out, from the model file; no device is opened."""
        return _serving("autocomplete").complete_config(auto_complete_model_config)

    def initialize(self, args: Mapping[str, str]) -> None:
        """Open the model, on the device that the instance's number chooses."""
        self._backend = _serving("backend").open_backend(args)

    def execute(self, requests: Sequence[Any]) -> list[Any] | None:
        """Return one response for each request, in order, or send them later."""
        return self._backend.execute(requests)

    def finalize(self) -> None:
        """Close the model."""
        self._backend.close()
        _serving("stub").leave(self)


def _serving(name: str) -> Any:
    try:
        return import_module(f"gepipe.serving.{name}")
    except ImportError as error:
        python = sys.executable
        raise ImportError(
            f"backend ge: {error}; it needs numpy<2 and the gepipe that serves it "
            f"in the first python3 on the server's PATH, {python}: gepipe triton install"
        ) from error
