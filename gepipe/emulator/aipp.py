"""AIPP: what the inputs of a model are preprocessed with."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from gepipe.emulator.api import acl_call
from gepipe.emulator.handles import Site
from gepipe.emulator.model import UNKNOWN_MODEL, model_of

if TYPE_CHECKING:
    from gepipe.emulator.machine import Machine

INVALID_PARAM, NO_AIPP = 100000, 145015
_NONE, _STATIC = 0, 1


@dataclass(eq=False, slots=True)
class DynamicAipp:
    """Preprocessing parameters for one request."""

    batch: int
    values: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    site: Site = field(default_factory=Site)

    def __str__(self) -> str:
        return f"AIPP parameters made at {self.site}"


@acl_call("mdl.get_aipp_type", "Ik", "vvr")
def get_aipp_type(machine: Machine, model_id: int, index: int) -> tuple[int, int, int]:
    """Return 1 for an input with static AIPP, else 0; the emulator has no dynamic one."""
    model = model_of(machine, model_id)
    if model is None:
        return 0, 0, UNKNOWN_MODEL
    if index >= len(model.om.inputs) + bool(model.om.gears):
        return 0, 0, machine.fail(INVALID_PARAM, f"there is no input {index}")
    names = [tensor.name for tensor in model.om.inputs]
    has = index < len(names) and names[index] in model.om.aipp
    return _STATIC if has else _NONE, 0, 0


@acl_call("mdl.get_first_aipp_info", "Ik", "nr")
def get_first_aipp_info(
    machine: Machine, model_id: int, index: int
) -> tuple[dict[str, Any] | None, int]:
    """Return the static AIPP of an input."""
    model = model_of(machine, model_id)
    if model is None:
        return None, UNKNOWN_MODEL
    if index >= len(model.om.inputs) or model.om.inputs[index].name not in model.om.aipp:
        return None, machine.fail(NO_AIPP, f"input {index} has no AIPP")
    return asdict(model.om.aipp[model.om.inputs[index].name]), 0


@acl_call("mdl.create_aipp", "K", "v")
def create_aipp(machine: Machine, batch: int) -> int:
    """Create parameters for dynamic AIPP."""
    return machine.handles.add(DynamicAipp(batch)) if batch else 0


@acl_call("mdl.destroy_aipp", "k")
def destroy_aipp(machine: Machine, handle: int) -> int:
    """Destroy parameters for dynamic AIPP."""
    if handle == 0:
        return machine.fail(INVALID_PARAM, "AIPP is 0")
    found = machine.handles.get(handle, DynamicAipp)
    if found is None:
        machine.misuse(f"AIPP {handle:#x} is {machine.handles.fate(handle)}")
    machine.handles.remove(handle, f"{found}, destroyed at {Site()}")
    return 0


def _setter(name: str, formats: str) -> None:
    def keep(machine: Machine, handle: int, *values: Any) -> int:
        found = machine.handles.get(handle, DynamicAipp)
        if found is None:
            return machine.fail(INVALID_PARAM, f"AIPP is {handle:#x}")
        found.values[name] = values
        return 0

    keep.__doc__ = "Set a parameter of dynamic AIPP."
    acl_call(f"mdl.{name}", "k" + formats)(keep)


for _name, _formats in {
    "set_aipp_input_format": "i",
    "set_aipp_src_image_size": "ii",
    "set_aipp_csc_params": "i" * 16,
    "set_aipp_rbuv_swap_switch": "i",
    "set_aipp_ax_swap_switch": "i",
    "set_aipp_scf_params": "iiiiiK",
    "set_aipp_crop_params": "iiiiiK",
    "set_aipp_padding_params": "iiiiiK",
    "set_aipp_dtc_pixel_mean": "iiiiK",
    "set_aipp_dtc_pixel_min": "ffffK",
    "set_aipp_pixel_var_reci": "ffffK",
}.items():
    _setter(_name, _formats)


@acl_call("mdl.set_input_aipp", "Ikkk")
def set_input_aipp(machine: Machine, model_id: int, _dataset: int, index: int, _aipp: int) -> int:
    """Set the parameters of a dynamic AIPP input, which the emulator's models never have."""
    if model_of(machine, model_id) is None:
        return UNKNOWN_MODEL
    return machine.fail(NO_AIPP, f"input {index} has no dynamic AIPP")


@acl_call("mdl.set_aipp_by_input_index", "Ikkk")
def set_aipp_by_input_index(
    machine: Machine, model_id: int, _dataset: int, index: int, _aipp: int
) -> int:
    """Set the parameters of a dynamic AIPP input, which the emulator's models never have."""
    if model_of(machine, model_id) is None:
        return UNKNOWN_MODEL
    return machine.fail(NO_AIPP, f"input {index} has no dynamic AIPP")
