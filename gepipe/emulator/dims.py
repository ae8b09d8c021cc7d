"""The dims of a model's inputs and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gepipe.emulator.api import acl_call
from gepipe.emulator.describe import desc_of, described, output_name, tensor_of
from gepipe.emulator.ommodel import OmModel, Shape

if TYPE_CHECKING:
    from gepipe.emulator.machine import Machine

INVALID_PARAM, NOT_SUPPORTED = 100000, 200001


def _dims(name: str, shape: Shape) -> dict[str, Any]:
    return {"name": name, "dimCount": len(shape), "dims": list(shape)}


@acl_call("mdl.get_input_dims", "kk", "dr")
def get_input_dims(machine: Machine, handle: int, index: int) -> tuple[dict[str, Any], int]:
    """Return an input's dims, -1 where a gear decides."""
    tensor = tensor_of(machine, handle, index, "input")
    return ({}, INVALID_PARAM) if tensor is None else (_dims(tensor.name, tensor.shape), 0)


@acl_call("mdl.get_input_dims_v2", "kk", "dr")
def get_input_dims_v2(machine: Machine, handle: int, index: int) -> tuple[dict[str, Any], int]:
    """Return an input's dims so that their product is its bytes, with static AIPP."""
    om, tensor = described(machine, handle), tensor_of(machine, handle, index, "input")
    if om is None or tensor is None:
        return {}, INVALID_PARAM
    shape = tensor.shape
    aipp = om.aipp.get(tensor.name)
    if aipp is not None and aipp.input_format == "YUV420SP_U8":
        batch, height, width, _ = shape
        shape = (batch, height * 3 // 2, width, 1)
    return _dims(tensor.name, shape), 0


@acl_call("mdl.get_input_dims_range", "kk", "dr")
def get_input_dims_range(machine: Machine, handle: int, index: int) -> tuple[dict[str, Any], int]:
    """Return the range of each of an input's dims."""
    om, tensor = described(machine, handle), tensor_of(machine, handle, index, "input")
    if om is None or tensor is None:
        return {}, INVALID_PARAM
    pairs = [list(pair) for pair in om.ranges.get(tensor.name, ())]
    return {"rangeCount": len(pairs), "range": pairs}, 0


def _output_dims(om: OmModel, index: int, gear: int) -> dict[str, Any]:
    shape = om.outputs[index].shape if om.is_shape_range else om.output_shapes[gear][index]
    return _dims(output_name(om, index), shape)


@acl_call("mdl.get_output_dims", "kk", "dr")
def get_output_dims(machine: Machine, handle: int, index: int) -> tuple[dict[str, Any], int]:
    """Return an output's dims, those of the largest gear."""
    om = described(machine, handle)
    if om is None or tensor_of(machine, handle, index, "output") is None:
        return {}, INVALID_PARAM
    return _output_dims(om, index, om.largest_gear), 0


@acl_call("mdl.get_cur_output_dims", "kk", "dr")
def get_cur_output_dims(machine: Machine, handle: int, index: int) -> tuple[dict[str, Any], int]:
    """Return an output's dims at the gear that was set last."""
    om = described(machine, handle)
    if om is None or tensor_of(machine, handle, index, "output") is None:
        return {}, INVALID_PARAM
    if om.is_shape_range:
        text = f"{om.name} takes ranges of shapes; ask the output dataset's tensor description"
        return {}, machine.fail(NOT_SUPPORTED, text)
    desc = desc_of(machine, handle)
    gear = desc.model.gear if desc is not None and desc.model is not None else None
    return _output_dims(om, index, om.largest_gear if gear is None else gear), 0
