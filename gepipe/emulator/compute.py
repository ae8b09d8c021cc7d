"""What a model computes: its graph on ONNX Runtime, or a cheap function of its inputs.

A model without a graph only takes time. Its outputs still depend on its inputs, row by row, so
that a batch which went astray shows: see `expected`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gepipe.emulator.om import OmModel, Shape
from gepipe.emulator.preprocess import apply_aipp, has_channels_first

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PERIOD: Final = 97


def view(address: int, dtype: Any, shape: Shape) -> NDArray[Any]:
    """Return an array over memory; valid as long as the memory is."""
    count = math.prod(shape)
    nbytes = count * np.dtype(dtype).itemsize
    raw = memoryview((ctypes.c_uint8 * max(nbytes, 1)).from_address(address))
    array: NDArray[Any] = np.frombuffer(raw, np.uint8, nbytes).view(dtype).reshape(shape)
    return array


class Timing:
    """A model that only takes time."""

    def __init__(self, om: OmModel) -> None:
        self._om = om

    def run(self, inputs: Sequence[NDArray[Any]], shapes: Sequence[Shape]) -> list[NDArray[Any]]:
        """Return the outputs for some inputs."""
        return expected(self._om, inputs, shapes)


def expected(
    om: OmModel, inputs: Sequence[NDArray[Any]], shapes: Sequence[Shape]
) -> list[NDArray[Any]]:
    """Return what a model that only takes time makes of its inputs.

    Row r of an output holds k, k + 1, … modulo 97, where k is the sum of the first and last eight
    bytes of row r of every input. Without a common first axis, everything is one row.

    Args:
        om: The model.
        inputs: Its inputs.
        shapes: The shapes of its outputs.
    """
    first = {array.shape[0] if array.ndim else 1 for array in inputs}
    first |= {shape[0] if shape else 1 for shape in shapes}
    rows = first.pop() if len(first) == 1 else 1
    keys = np.zeros(rows, np.int64)
    for array in inputs:
        flat = array.reshape(rows, -1).view(np.uint8) if array.size else np.zeros((rows, 1))
        keys += flat[:, :8].sum(axis=1, dtype=np.int64)
        keys += flat[:, -8:].sum(axis=1, dtype=np.int64)
    outputs = []
    for tensor, shape in zip(om.outputs, shapes, strict=True):
        width = math.prod(shape) // rows
        pattern = _pattern(width, tensor.dtype)
        values = np.empty((rows, width), tensor.dtype)
        for row, key in enumerate((keys % _PERIOD).tolist()):
            values[row] = pattern[key : key + width]
        outputs.append(values.reshape(shape))
    return outputs


@lru_cache(maxsize=8)
def _pattern(width: int, dtype: str) -> NDArray[Any]:
    return (np.arange(width + _PERIOD) % _PERIOD).astype(dtype)


class KernelError(Exception):
    """A kernel of a model failed, such as on an index that is out of bounds."""


class OnnxRuntime:
    """A model that computes, on one CPU thread."""

    def __init__(self, om: OmModel) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what goes wrong is raised as well
        try:
            self._session: Any = onnxruntime.InferenceSession(
                om.graph, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its kinds of errors have no common one
            raise KernelError(f"ONNX Runtime cannot load the graph: {error}") from error
        self._om = om
        self._wants: Mapping[str, tuple[str, list[Any]]] = {
            each.name: (each.type, each.shape) for each in self._session.get_inputs()
        }
        self._names = [tensor.name for tensor in om.outputs]

    def run(self, inputs: Sequence[NDArray[Any]], _shapes: Sequence[Shape]) -> list[NDArray[Any]]:
        """Return the outputs for some inputs."""
        feed = {}
        for tensor, array in zip(self._om.inputs, inputs, strict=True):
            wanted, shape = self._wants[tensor.name]
            aipp = self._om.aipp.get(tensor.name)
            dtype = DTYPE_OF_ORT[wanted]
            if aipp is not None:
                feed[tensor.name] = apply_aipp(
                    aipp, array, dtype, channels_first=has_channels_first(shape)
                )
            else:
                feed[tensor.name] = array.astype(dtype, copy=False)
        try:
            results = self._session.run(self._names, feed)
        except Exception as error:  # its kinds of errors have no common one
            raise KernelError(str(error)) from error
        return [
            result.astype(tensor.dtype, copy=False)
            for tensor, result in zip(self._om.outputs, results, strict=True)
        ]


#: ONNX Runtime's name of a type to NumPy's.
DTYPE_OF_ORT = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(bool)": "bool",
    **{
        f"tensor({sign}int{bits})": f"{sign}int{bits}"
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}


def session_of(om: OmModel) -> Timing | OnnxRuntime:
    """Return what computes a model."""
    return OnnxRuntime(om) if om.graph else Timing(om)
