"""Gears: the shapes a model was compiled for, as `acl.mdl` lists and sets them."""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Any

from gepipe.emulator.api import acl_call
from gepipe.emulator.buffers import Dataset, buffer_of, dataset_of
from gepipe.emulator.describe import described
from gepipe.emulator.ends import End, touch
from gepipe.emulator.loaded import Model
from gepipe.emulator.model import UNKNOWN_MODEL, model_of
from gepipe.emulator.om import OmModel, Shape

if TYPE_CHECKING:
    from gepipe.emulator.machine import Machine

INVALID_PARAM, TOO_SHORT, NO_GEAR = 100000, 145012, 145013


def gear_bytes(value: Shape) -> bytes:
    """Return what the gear input holds."""
    return struct.pack(f"<{len(value)}i", *value)


def _values(om: OmModel, kind: str) -> tuple[Shape, ...]:
    return om.gears.values if om.gears is not None and om.gears.kind == kind else ()


@acl_call("mdl.get_dynamic_batch", "k", "dr")
def get_dynamic_batch(machine: Machine, handle: int) -> tuple[dict[str, Any], int]:
    """List the batch sizes; none for a static model."""
    if (om := described(machine, handle)) is None:
        return {}, INVALID_PARAM
    sizes = [size for (size,) in _values(om, "batch")]
    return {"batchCount": len(sizes), "batch": sizes}, 0


@acl_call("mdl.get_dynamic_hw", "ki", "dr")
def get_dynamic_hw(machine: Machine, handle: int, _index: int) -> tuple[dict[str, Any], int]:
    """List the image sizes; none for a static model."""
    if (om := described(machine, handle)) is None:
        return {}, INVALID_PARAM
    sizes = [list(size) for size in _values(om, "hw")]
    return {"hwCount": len(sizes), "hw": sizes}, 0


@acl_call("mdl.get_input_dynamic_gear_count", "ki", "vr")
def get_input_dynamic_gear_count(machine: Machine, handle: int, index: int) -> tuple[int, int]:
    """Return how many dims gears there are."""
    if (om := described(machine, handle)) is None:
        return 0, INVALID_PARAM
    if index != -1:
        return 0, machine.fail(INVALID_PARAM, f"index must be -1, not {index}")
    return len(_values(om, "dims")), 0


@acl_call("mdl.get_input_dynamic_dims", "kik", "lr")
def get_input_dynamic_dims(
    machine: Machine, handle: int, index: int, count: int
) -> tuple[list[dict[str, Any]], int]:
    """List the dims gears: for each, the dims of all inputs one after the other."""
    if (om := described(machine, handle)) is None:
        return [], INVALID_PARAM
    values = _values(om, "dims")
    if index != -1 or count < len(values):
        text = f"index must be -1, not {index}; count at least {len(values)}, not {count}"
        return [], machine.fail(INVALID_PARAM, text)
    gears = []
    for gear in range(len(values)):
        dims = [each for shape in om.input_shapes(gear) for each in shape]
        gears.append({"name": "", "dimCount": len(dims), "dims": dims})
    return gears, 0


def _set(machine: Machine, model_id: int, dataset_handle: int, index: int, value: Shape) -> int:
    """Set a gear: write its numbers into the gear input, and remember it."""
    model = model_of(machine, model_id)
    if model is None:
        return UNKNOWN_MODEL
    dataset = dataset_of(machine, dataset_handle)
    if dataset is None:
        return INVALID_PARAM
    end, code = _gear_input(machine, model, dataset, index, value)
    if end is None:
        return code
    gears = model.om.gears
    assert gears is not None
    if value not in gears.values:
        text = f"{list(value)} is not among the gears {[list(each) for each in gears.values]}"
        return machine.fail(NO_GEAR, text)
    data = gear_bytes(value)
    touch(machine, end, len(data), writes=True, label="setting a gear")
    ctypes.memmove(end.real, data, len(data))
    model.gear = gears.values.index(value)
    dataset.gear = (model.id, model.gear)
    return 0


def _gear_input(
    machine: Machine, model: Model, dataset: Dataset, index: int, value: Shape
) -> tuple[End | None, int]:
    """Return where the gear input lies, or a code."""
    axes = model.om.gear_axes
    if index >= len(dataset.buffers) or index != len(model.om.inputs):
        text = f"index {index} is not that of the gear input, {len(model.om.inputs)}"
        return None, machine.fail(INVALID_PARAM, text)
    buffer = buffer_of(machine, dataset.buffers[index])
    if buffer is None or buffer.ptr == 0:
        return None, machine.fail(INVALID_PARAM, "the gear input has no memory")
    if len(value) != axes or buffer.size < 4 * axes:
        text = f"{len(value)} numbers for {axes} axes in {buffer.size} bytes"
        return None, machine.fail(TOO_SHORT, text)
    block = machine.host.locate(buffer.ptr, 4 * axes)
    if block is None or block.kind != "device memory":
        machine.misuse(f"the gear input {buffer.ptr:#x} is {machine.host.describe(buffer.ptr)}")
    return End(buffer.ptr, block, known=True), 0


def _wrong_kind(machine: Machine, model_id: int, kind: str) -> int:
    model = model_of(machine, model_id)
    if model is None:
        return UNKNOWN_MODEL
    if model.om.gears is None or model.om.gears.kind != kind:
        return machine.fail(INVALID_PARAM, f"{model} has no {kind} gears")
    return 0


@acl_call("mdl.set_dynamic_batch_size", "IkkK")
def set_dynamic_batch_size(
    machine: Machine, model_id: int, dataset: int, index: int, batch: int
) -> int:
    """Choose the batch size of the next execution."""
    if batch == 0:
        return machine.fail(INVALID_PARAM, "batch is 0")
    if code := _wrong_kind(machine, model_id, "batch"):
        return code
    return _set(machine, model_id, dataset, index, (batch,))


@acl_call("mdl.set_dynamic_hw_size", "IkkKK")
def set_dynamic_hw_size(  # noqa: PLR0913, PLR0917 - acl has as many
    machine: Machine, model_id: int, dataset: int, index: int, height: int, width: int
) -> int:
    """Choose the image size of the next execution."""
    if height == 0 or width == 0:
        return machine.fail(INVALID_PARAM, "height or width is 0")
    if code := _wrong_kind(machine, model_id, "hw"):
        return code
    return _set(machine, model_id, dataset, index, (height, width))


@acl_call("mdl.set_input_dynamic_dims", "IkkD")
def set_input_dynamic_dims(
    machine: Machine, model_id: int, dataset: int, index: int, dims: dict[str, Any]
) -> int:
    """Choose the dims of all inputs of the next execution."""
    listed = dims.get("dims")
    count = dims.get("dimCount")
    if (
        not isinstance(listed, list)
        or not isinstance(count, int)
        or not all(isinstance(each, int) for each in listed)
    ):
        raise TypeError("acl.mdl.set_input_dynamic_dims args parse failed!")
    if code := _wrong_kind(machine, model_id, "dims"):
        return code
    model = model_of(machine, model_id)
    assert model is not None
    pattern = [each for tensor in model.om.inputs for each in tensor.shape]
    if count != len(listed) or len(listed) != len(pattern):
        text = f"{len(listed)} dims for inputs that have {len(pattern)} together"
        return machine.fail(TOO_SHORT, text)
    for given, wanted in zip(listed, pattern, strict=True):
        if wanted not in (-1, given):
            text = f"{listed} does not fit the inputs' dims {pattern}"
            return machine.fail(NO_GEAR, text)
    value = tuple(n for n, each in zip(listed, pattern, strict=True) if each < 0)
    return _set(machine, model_id, dataset, index, value)
