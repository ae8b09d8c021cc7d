"""Descriptions of models: the getters of `acl.mdl`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gepipe.emulator.api import acl_call
from gepipe.emulator.handles import Site
from gepipe.emulator.loaded import Model
from gepipe.emulator.model import UNKNOWN_MODEL, model_of, read_file, read_memory
from gepipe.emulator.om import FORMATS, GEAR_INPUT, OmModel, OmTensor
from gepipe.tensors import DTYPES

if TYPE_CHECKING:
    from gepipe.emulator.machine import Machine

INVALID_PARAM = 100000


@dataclass(eq=False, slots=True)
class Desc:
    """A description of a model, empty until it is filled."""

    om: OmModel | None = None
    model: Model | None = None
    site: Site = field(default_factory=Site)

    def __str__(self) -> str:
        return f"model description made at {self.site}"


def desc_of(machine: Machine, handle: int) -> Desc | None:
    """Return a live description, or None for 0."""
    if handle == 0:
        machine.fail(INVALID_PARAM, "model description is 0")
        return None
    desc = machine.handles.get(handle, Desc)
    if desc is None:
        machine.misuse(f"model description {handle:#x} is {machine.handles.fate(handle)}")
    return desc


def described(machine: Machine, handle: int) -> OmModel | None:
    """Return the model that a description is of, or None and leave a message."""
    desc = desc_of(machine, handle)
    if desc is not None and desc.om is None:
        machine.fail(INVALID_PARAM, "the model description is empty: acl.mdl.get_desc is missing")
    return None if desc is None else desc.om


def inputs_of(om: OmModel) -> list[OmTensor]:
    """Return the inputs that a program sees: also the one that holds the gear."""
    if om.gears is None:
        return list(om.inputs)
    return [*om.inputs, OmTensor(GEAR_INPUT, "int32", (om.gear_axes,))]


def output_name(om: OmModel, index: int) -> str:
    """Return an output's name as atc makes it: node, place and tensor."""
    return f"node_{index}:0:{om.outputs[index].name}" if om.graph else om.outputs[index].name


def tensor_of(machine: Machine, handle: int, index: int, side: str) -> OmTensor | None:
    """Return an input or output of a described model, or None and leave a message."""
    om = described(machine, handle)
    if om is None:
        return None
    tensors = inputs_of(om) if side == "input" else list(om.outputs)
    if index < len(tensors):
        return tensors[index]
    machine.fail(INVALID_PARAM, f"there is no {side} {index}, only {len(tensors)}")
    return None


@acl_call("mdl.create_desc", "*", "v")
def create_desc(machine: Machine) -> int:
    """Create an empty description."""
    return machine.handles.add(Desc())


@acl_call("mdl.get_desc", "kI")
def get_desc(machine: Machine, handle: int, model_id: int) -> int:
    """Fill a description from a loaded model."""
    if (desc := desc_of(machine, handle)) is None:
        return INVALID_PARAM
    if (model := model_of(machine, model_id)) is None:
        return UNKNOWN_MODEL
    desc.om, desc.model = model.om, model
    return 0


@acl_call("mdl.get_desc_from_file", "ks")
def get_desc_from_file(machine: Machine, handle: int, path: str) -> int:
    """Fill a description from a model file."""
    if (desc := desc_of(machine, handle)) is None:
        return INVALID_PARAM
    desc.om, code = read_file(machine, path)
    return code


@acl_call("mdl.get_desc_from_mem", "kkk")
def get_desc_from_mem(machine: Machine, handle: int, ptr: int, size: int) -> int:
    """Fill a description from a model in host memory."""
    if (desc := desc_of(machine, handle)) is None:
        return INVALID_PARAM
    desc.om, code = read_memory(machine, ptr, size)
    return code


@acl_call("mdl.destroy_desc", "k")
def destroy_desc(machine: Machine, handle: int) -> int:
    """Destroy a description."""
    if (desc := desc_of(machine, handle)) is None:
        return INVALID_PARAM
    machine.handles.remove(handle, f"{desc}, destroyed at {Site()}")
    return 0


@acl_call("mdl.get_num_inputs", "k", "v")
def get_num_inputs(machine: Machine, handle: int) -> int:
    """Return how many inputs there are, the gear's included."""
    om = described(machine, handle)
    return 0 if om is None else len(inputs_of(om))


@acl_call("mdl.get_num_outputs", "k", "v")
def get_num_outputs(machine: Machine, handle: int) -> int:
    """Return how many outputs there are."""
    om = described(machine, handle)
    return 0 if om is None else len(om.outputs)


def input_bytes(om: OmModel, index: int) -> int:
    """Return the bytes of an input at its largest, the gear's included."""
    return 4 * om.gear_axes if index == len(om.inputs) else om.input_bytes(index)


@acl_call("mdl.get_input_size_by_index", "kk", "v")
def get_input_size_by_index(machine: Machine, handle: int, index: int) -> int:
    """Return the bytes of an input at its largest; 0 for a bad index or without a bound."""
    om = described(machine, handle)
    if om is None or tensor_of(machine, handle, index, "input") is None:
        return 0
    return input_bytes(om, index)


@acl_call("mdl.get_output_size_by_index", "kk", "v")
def get_output_size_by_index(machine: Machine, handle: int, index: int) -> int:
    """Return the bytes of an output at its largest; 0 for a bad index or without a bound."""
    om = described(machine, handle)
    if om is None or tensor_of(machine, handle, index, "output") is None:
        return 0
    return om.output_bytes(index)


@acl_call("mdl.get_input_name_by_index", "kk", "v")
def get_input_name_by_index(machine: Machine, handle: int, index: int) -> str:
    """Return an input's name, empty for a bad index."""
    tensor = tensor_of(machine, handle, index, "input")
    return "" if tensor is None else tensor.name


@acl_call("mdl.get_output_name_by_index", "kk", "v")
def get_output_name_by_index(machine: Machine, handle: int, index: int) -> str:
    """Return an output's name as atc makes it, empty for a bad index."""
    om = described(machine, handle)
    if om is None or tensor_of(machine, handle, index, "output") is None:
        return ""
    return output_name(om, index)


def _index(machine: Machine, names: list[str], name: str) -> tuple[int, int]:
    if name in names:
        return names.index(name), 0
    return 0, machine.fail(INVALID_PARAM, f"{name!r} is not among {names}")


@acl_call("mdl.get_input_index_by_name", "ks", "vr")
def get_input_index_by_name(machine: Machine, handle: int, name: str) -> tuple[int, int]:
    """Return the index of an input."""
    if (om := described(machine, handle)) is None:
        return 0, INVALID_PARAM
    return _index(machine, [tensor.name for tensor in inputs_of(om)], name)


@acl_call("mdl.get_output_index_by_name", "ks", "vr")
def get_output_index_by_name(machine: Machine, handle: int, name: str) -> tuple[int, int]:
    """Return the index of an output."""
    if (om := described(machine, handle)) is None:
        return 0, INVALID_PARAM
    return _index(machine, [output_name(om, i) for i in range(len(om.outputs))], name)


def _type(machine: Machine, handle: int, index: int, side: str) -> int:
    tensor = tensor_of(machine, handle, index, side)
    return -1 if tensor is None else DTYPES[tensor.dtype].acl


def _format(machine: Machine, handle: int, index: int, side: str) -> int:
    tensor = tensor_of(machine, handle, index, side)
    return -1 if tensor is None else FORMATS[tensor.format]


@acl_call("mdl.get_input_data_type", "kk", "v")
def get_input_data_type(machine: Machine, handle: int, index: int) -> int:
    """Return an input's data type, -1 for a bad index."""
    return _type(machine, handle, index, "input")


@acl_call("mdl.get_output_data_type", "kk", "v")
def get_output_data_type(machine: Machine, handle: int, index: int) -> int:
    """Return an output's data type, -1 for a bad index."""
    return _type(machine, handle, index, "output")


@acl_call("mdl.get_input_format", "kk", "v")
def get_input_format(machine: Machine, handle: int, index: int) -> int:
    """Return an input's format, -1 for a bad index."""
    return _format(machine, handle, index, "input")


@acl_call("mdl.get_output_format", "kk", "v")
def get_output_format(machine: Machine, handle: int, index: int) -> int:
    """Return an output's format, -1 for a bad index."""
    return _format(machine, handle, index, "output")


@acl_call("mdl.get_tensor_real_name", "ks", "v")
def get_tensor_real_name(machine: Machine, handle: int, name: str) -> str | None:
    """Return the long name that an alias stands for; here names are never shortened."""
    om = described(machine, handle)
    if om is None:
        return None
    names = [tensor.name for tensor in inputs_of(om)]
    names += [output_name(om, index) for index in range(len(om.outputs))]
    return name if name in names else ""
