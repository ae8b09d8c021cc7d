"""Reading from ACL what a model takes and gives."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

from gepipe.engines.ge.interface import Description, Ranges, Shape, Tensor
from gepipe.engines.ge.runtime import Acl
from gepipe.errors import DeviceError, ModelLoadError
from gepipe.tensors import DTYPE_OF_ACL, DYNAMIC

#: The input that holds the gear. ACL fills it; nobody else may.
GEAR_INPUT: Final = "ascend_mbatch_shape_data"
_DYNAMIC_AIPP: Final = "ascend_dynamic_aipp_data"
_STATIC_AIPP: Final = 1
_NODE_NAME: Final = re.compile(r"^.+:\d+:(?P<tensor>.+)$", re.DOTALL)
_OTHER_TYPES: Final = {
    13: "STRING",
    16: "COMPLEX64",
    17: "COMPLEX128",
    27: "BF16",
    29: "INT4",
    30: "UINT1",
    33: "COMPLEX32",
    34: "HIFLOAT8",
    35: "FP8_E5M2",
    36: "FP8_E4M3FN",
}


def describe(acl: Acl, desc: int, path: Path, model_id: int | None = None) -> Description:
    """Read a model description.

    Args:
        acl: The functions of ACL.
        desc: The description's handle, filled.
        path: The model file, for messages.
        model_id: The loaded model, if it is; only then static AIPP can be told by name.

    Raises:
        ModelLoadError: The model has something that gepipe cannot feed.
    """
    inputs: list[Tensor] = []
    gear_index, gear_nbytes = -1, 0
    for index in range(acl.get_num_inputs(desc)):
        name = acl.get_input_name(desc, index)
        nbytes = acl.get_input_size(desc, index)
        if name == GEAR_INPUT:
            gear_index, gear_nbytes = index, nbytes
            continue
        if name == _DYNAMIC_AIPP:
            raise ModelLoadError(
                f"{path}: the model has dynamic AIPP, which gepipe does not set; convert it again "
                "with static AIPP, as `gepipe model convert MODEL.onnx --aipp-from PIPELINE.yaml` "
                "makes it, or without AIPP (no --insert_op_conf)"
            )
        inputs.append(_input(acl, desc, index, path, model_id))
    outputs = [
        Tensor(
            index,
            acl.get_output_name(desc, index),
            _dtype(acl.get_output_type(desc, index), f"{path}: output {index}"),
            _extents(acl.get_output_dims(desc, index)),
            acl.get_output_size(desc, index),
        )
        for index in range(acl.get_num_outputs(desc))
    ]
    kind, settings = ("static", ()) if gear_index < 0 else _gears(acl, desc)
    ranges: tuple[Ranges, ...] = ()
    if gear_index < 0 and any(DYNAMIC in tensor.dims for tensor in inputs):
        kind = "range"
        ranges = _ranges(acl, desc, inputs)
    inputs, outputs = _renamed(acl, desc, inputs), _renamed(acl, desc, outputs)
    _check(path, inputs, outputs)
    return Description(
        tuple(inputs), tuple(outputs), gear_index, gear_nbytes, kind, settings, ranges
    )


def _check(path: Path, inputs: list[Tensor], outputs: list[Tensor]) -> None:
    """Refuse what cannot be fed by name and row by row."""
    if not inputs:
        raise ModelLoadError(f"{path}: the model has no inputs; expected at least one")
    for side, tensors in (("inputs", inputs), ("outputs", outputs)):
        names = Counter(tensor.name for tensor in tensors)
        if twice := [name for name, count in names.items() if count > 1]:
            raise ModelLoadError(
                f"{path}: several {side} are named {', '.join(map(repr, twice))}; expected a name "
                "of its own for each"
            )
        for tensor in tensors:
            if tensor.dims[:1] == (0,):
                raise ModelLoadError(
                    f"{path}: {tensor} takes no rows; expected a batch of at least 1"
                )


def _input(acl: Acl, desc: int, index: int, path: Path, model_id: int | None) -> Tensor:
    dtype = _dtype(acl.get_input_type(desc, index), f"{path}: input {index}")
    # These differ only with static AIPP: YUV takes 1.5 bytes a pixel.
    second = acl.has("mdl.get_input_dims_v2")
    dims = _extents((acl.get_input_dims_v2 if second else acl.get_input_dims)(desc, index))
    nbytes = acl.get_input_size(desc, index)
    pixels = False
    if model_id is not None and acl.has("mdl.get_aipp_type"):
        try:
            pixels = acl.get_aipp_type(model_id, index)[0] == _STATIC_AIPP
        except DeviceError:  # some releases answer a model without AIPP with an error
            acl.message()
    return Tensor(
        index,
        acl.get_input_name(desc, index),
        dtype,
        dims,
        nbytes,
        acl.get_input_format(desc, index),
        pixels,
    )


def _extents(dims: dict[str, Any]) -> Shape:
    return tuple(int(extent) for extent in dims["dims"])


def _dtype(code: int, what: str) -> str:
    if (known := DTYPE_OF_ACL.get(code)) is not None:
        return known.name
    name = _OTHER_TYPES.get(code, f"of unknown type {code}")
    raise ModelLoadError(
        f"{what} is {name}, which NumPy does not have; convert the model with `--output_type=FP32` "
        "or another type for its inputs"
    )


def _gears(acl: Acl, desc: int) -> tuple[str, tuple[Shape, ...]]:
    """Return what a gear sets, and all gears."""
    sizes = acl.get_dynamic_batch(desc)["batch"]
    if sizes:
        return "batch", tuple((int(size),) for size in sorted(sizes))
    pairs = acl.get_dynamic_hw(desc, -1)["hw"]
    if pairs:
        return "hw", tuple((int(height), int(width)) for height, width in pairs)
    count = acl.get_input_dynamic_gear_count(desc, -1)
    gears = acl.get_input_dynamic_dims(desc, -1, count)
    return "dims", tuple(_extents(gear) for gear in gears)


def _ranges(acl: Acl, desc: int, inputs: list[Tensor]) -> tuple[Ranges, ...]:
    if not acl.has("mdl.get_input_dims_range"):
        return ()
    found = []
    for tensor in inputs:
        pairs = acl.get_input_dims_range(desc, tensor.index)["range"]
        listed = tuple((int(low), int(high)) for low, high in pairs)
        found.append(listed or tuple((extent, extent) for extent in tensor.dims))
    return tuple(found)


def _renamed(acl: Acl, desc: int, tensors: list[Tensor]) -> list[Tensor]:
    """Give tensors the names of the network: atc puts node and number in front of outputs."""
    names = []
    for tensor in tensors:
        name = tensor.name
        if name.startswith("acl_modelId_") and acl.has("mdl.get_tensor_real_name"):
            name = acl.get_tensor_real_name(desc, name) or name
        names.append(name)
    short = [
        match["tensor"] if (match := _NODE_NAME.match(name)) is not None else name for name in names
    ]
    counts = Counter(short)
    return [
        Tensor(
            tensor.index,
            brief if counts[brief] == 1 else name,
            tensor.dtype,
            tensor.dims,
            tensor.nbytes,
            tensor.format,
            tensor.pixels,
        )
        for tensor, name, brief in zip(tensors, names, short, strict=True)
    ]
