"""An ONNX model opened by ONNX Runtime: its session, its inputs and outputs, its batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gepipe.errors import ModelLoadError, TensorMismatchError
from gepipe.tensors import DYNAMIC, TensorSpec

if TYPE_CHECKING:
    from gepipe.engines.engine import EngineOptions

_PROVIDER: Final = "CPUExecutionProvider"
#: ONNX Runtime's names of element types, where they differ from NumPy's.
_DTYPES: Final = {"float": "float32", "double": "float64"}


def open_session(model: Path, options: EngineOptions) -> Any:
    """Return ONNX Runtime's session of a model on the CPU.

    Raises:
        ModelLoadError: ONNX Runtime refuses it.
    """
    # Newer wheels report use, with a device id, to their maker. Nobody who runs a
    # pipeline was asked; whoever wants it sets the variable to 0.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = options.threads
    session_options.inter_op_num_threads = 1
    # Spinning threads would take the cores from the pre workers.
    session_options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session_options.log_severity_level = 3
    if options.variants is not None:
        # An arena grows with each new shape and gives nothing back, and plans of memory are
        # kept for each.
        session_options.enable_cpu_mem_arena = False
        session_options.enable_mem_pattern = False
    try:
        return onnxruntime.InferenceSession(str(model), session_options, providers=[_PROVIDER])
    except Exception as error:  # ONNX Runtime raises classes without a common base
        raise ModelLoadError(f"{model}: ONNX Runtime cannot open it: {error}") from error


def described(options: EngineOptions) -> str:
    """Return what runs a model, in words."""
    import onnxruntime

    plural = "s" * (options.threads != 1)
    return f"ONNX Runtime {onnxruntime.__version__} on the CPU, {options.threads} thread{plural}"


def no_batch(name: str, shape: Sequence[int], rows: int, model: Path) -> TensorMismatchError:
    """Return the error of an output whose first axis is not the batch.

    Args:
        name: The output.
        shape: Its shape.
        rows: The batch's size; 0 for any.
        model: The model's file.
    """
    batch = f"a batch of {rows}" if rows else "a batch of any size"
    return TensorMismatchError(
        f"{model}: output {name!r} has shape {list(shape)} for {batch}; expected the batch as its "
        "first axis"
    )


def spec_of(arg: Any, model: Path, taken: Sequence[str]) -> TensorSpec:
    """Return what an input or output of a session is.

    Args:
        arg: ONNX Runtime's `NodeArg`.
        model: The model's file.
        taken: The dtypes that are taken.

    Raises:
        ModelLoadError: It is no tensor, or one of another dtype.
    """
    element = arg.type.removeprefix("tensor(").removesuffix(")")
    dtype = _DTYPES.get(element, element)
    try:
        shape = tuple(e if isinstance(e, int) and e >= 0 else DYNAMIC for e in arg.shape)
    except TypeError as error:  # a sequence or a map has no shape
        raise ModelLoadError(f"{model}: {arg.name!r} is a {arg.type}: {error}") from error
    if dtype not in taken:
        raise ModelLoadError(
            f"{model}: {arg.name!r} is a {arg.type}; expected a tensor of {', '.join(taken)}"
        )
    return TensorSpec(arg.name, dtype, shape)


def gears_of(
    inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], model: Path
) -> tuple[int, ...]:
    """Return the batch sizes of a model: one if it is fixed, none if any will do.

    Raises:
        TensorMismatchError: The batch is not the first axis of each input and output.
    """
    batches = {spec.shape[0] if spec.shape else 0 for spec in inputs}
    fixed = batches - {DYNAMIC}
    if not fixed and any(spec.shape[:1] == (1,) for spec in outputs):
        # Exported with one row and only the inputs made dynamic: row by row it is right.
        fixed = {1}
    if len(fixed) <= 1 and min(fixed, default=1) > 0:
        for spec in outputs:
            if spec.shape and spec.shape[0] not in (DYNAMIC, *fixed):
                raise no_batch(spec.name, spec.shape, min(fixed, default=0), model)
        return tuple(fixed)
    listed = "; ".join(str(spec) for spec in inputs)
    raise TensorMismatchError(
        f"{model}: the inputs do not share a batch axis: {listed}; expected the batch as the first "
        "axis of each"
    )
