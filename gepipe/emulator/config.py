"""Loading and executing by configuration handles, and model bundles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gepipe.emulator.api import acl_call
from gepipe.emulator.execute import execute_async
from gepipe.emulator.handles import Site
from gepipe.emulator.model import (
    Lent,
    load,
    load_from_file,
    read_file,
    read_memory,
    unload,
)

if TYPE_CHECKING:
    from gepipe.emulator.device import Context
    from gepipe.emulator.machine import Machine

INVALID_PARAM, UNKNOWN_BUNDLE = 100000, 148053
_TYPE, _PATH, _MEM, _MEM_SIZE, _WEIGHT, _WEIGHT_SIZE, _WORK, _WORK_SIZE = range(1, 9)
_TEXTS, _INTS, _POINTERS = {_PATH}, {0}, {3, 5, 7, 14}
_HIGHEST: Final = 14
_FROM_FILE, _FROM_MEMORY = {1, 2}, {3, 4}


@dataclass(eq=False, slots=True)
class LoadConfig:
    """How to load a model."""

    values: dict[int, Any] = field(default_factory=dict)
    site: Site = field(default_factory=Site)

    def __str__(self) -> str:
        return f"load configuration made at {self.site}"


@dataclass(eq=False, slots=True)
class ExecConfig:
    """How to execute a model: attribute 0 or 1 to milliseconds."""

    timeouts_ms: dict[int, int] = field(default_factory=dict)
    site: Site = field(default_factory=Site)

    def __str__(self) -> str:
        return f"execution configuration made at {self.site}"


def _config(machine: Machine, handle: int, kind: type[Any]) -> Any:
    if handle == 0:
        machine.fail(INVALID_PARAM, "configuration is 0")
        return None
    found = machine.handles.get(handle, kind)
    if found is None:
        machine.misuse(f"configuration {handle:#x} is {machine.handles.fate(handle)}")
    return found


def _destroy(machine: Machine, handle: int, kind: type[Any]) -> int:
    if (config := _config(machine, handle, kind)) is None:
        return INVALID_PARAM
    machine.handles.remove(handle, f"{config}, destroyed at {Site()}")
    return 0


@acl_call("mdl.create_config_handle", "*", "v")
def create_config_handle(machine: Machine) -> int:
    """Create a configuration for loading."""
    return machine.handles.add(LoadConfig())


@acl_call("mdl.destroy_config_handle", "k")
def destroy_config_handle(machine: Machine, handle: int) -> int:
    """Destroy a configuration for loading."""
    return _destroy(machine, handle, LoadConfig)


@acl_call("mdl.set_config_opt", "kiO")
def set_config_opt(machine: Machine, handle: int, attribute: int, value: Any) -> int:
    """Set one attribute of a configuration for loading."""
    if (config := _config(machine, handle, LoadConfig)) is None:
        return INVALID_PARAM
    if not 0 <= attribute <= _HIGHEST:
        return machine.fail(INVALID_PARAM, f"attribute {attribute} does not exist")
    if not isinstance(value, str if attribute in _TEXTS else int):
        raise TypeError("acl.mdl.set_config_opt args parse failed!")
    config.values[attribute] = value
    return 0


@acl_call("mdl.load_with_config", "k", "vr", context=True)
def load_with_config(machine: Machine, context: Context, handle: int) -> tuple[int, int]:
    """Load a model as a configuration says."""
    if (config := _config(machine, handle, LoadConfig)) is None:
        return 0, INVALID_PARAM
    values = config.values
    kind = values.get(_TYPE)
    if kind in _FROM_FILE and _PATH in values:
        source = read_file(machine, values[_PATH])
    elif kind in _FROM_MEMORY and _MEM in values:
        source = read_memory(machine, values[_MEM], values.get(_MEM_SIZE, 0))
    else:
        text = f"load type {kind} lacks its attributes, or is out of the emulator's scope"
        return 0, machine.fail(INVALID_PARAM, text)
    lent = Lent()
    if kind in (2, 4):
        lent = Lent(*(values.get(key, 0) for key in (_WORK, _WORK_SIZE, _WEIGHT, _WEIGHT_SIZE)))
    return load(machine, context, source, lent)


@acl_call("mdl.create_exec_config_handle", "*", "v")
def create_exec_config_handle(machine: Machine) -> int:
    """Create a configuration for executing."""
    return machine.handles.add(ExecConfig())


@acl_call("mdl.destroy_exec_config_handle", "k")
def destroy_exec_config_handle(machine: Machine, handle: int) -> int:
    """Destroy a configuration for executing."""
    return _destroy(machine, handle, ExecConfig)


@acl_call("mdl.set_exec_config_opt", "kii")
def set_exec_config_opt(machine: Machine, handle: int, attribute: int, value: int) -> int:
    """Set one timeout of a configuration for executing."""
    if (config := _config(machine, handle, ExecConfig)) is None:
        return INVALID_PARAM
    if attribute not in (0, 1):
        return machine.fail(INVALID_PARAM, f"attribute {attribute} does not exist")
    config.timeouts_ms[attribute] = value
    return 0


@acl_call("mdl.execute_v2", "Ikkkk", context=True)
def execute_v2(  # noqa: PLR0913, PLR0917 - acl has as many
    machine: Machine,
    context: Context,
    model_id: int,
    ins: int,
    outs: int,
    stream_handle: int,
    config_handle: int,
) -> int:
    """Execute a model in a stream and wait for it, but not for ever."""
    if (config := _config(machine, config_handle, ExecConfig)) is None:
        return INVALID_PARAM
    if code := execute_async(machine, context, model_id, ins, outs, stream_handle):
        return int(code)
    stream, _ = machine.stream(context, stream_handle)
    assert stream is not None
    timeout_ms = config.timeouts_ms.get(0, -1)
    return stream.wait(None if timeout_ms < 0 else timeout_ms / 1000)


@acl_call("mdl.bundle_load_from_file", "s", "vr", context=True)
def bundle_load_from_file(machine: Machine, context: Context, path: str) -> tuple[int, int]:
    """Load a bundle; a model of the emulator is a bundle of one."""
    model_id, code = load_from_file(machine, context, path)
    if code:
        return 0, code
    bundle = 1 + max(machine.bundles, default=0)
    machine.bundles[bundle] = model_id
    return bundle, 0


@acl_call("mdl.bundle_get_model_num", "I", "vr")
def bundle_get_model_num(machine: Machine, bundle: int) -> tuple[int, int]:
    """Return how many models a bundle has."""
    if bundle not in machine.bundles:
        return 0, machine.fail(UNKNOWN_BUNDLE, f"bundle {bundle} is not loaded")
    return 1, 0


@acl_call("mdl.bundle_get_model_id", "Ik", "vr")
def bundle_get_model_id(machine: Machine, bundle: int, index: int) -> tuple[int, int]:
    """Return one model of a bundle."""
    if bundle not in machine.bundles or index:
        return 0, machine.fail(UNKNOWN_BUNDLE, f"there is no model {index} of bundle {bundle}")
    return machine.bundles[bundle], 0


@acl_call("mdl.bundle_unload", "I")
def bundle_unload(machine: Machine, bundle: int) -> int:
    """Unload a bundle."""
    model_id = machine.bundles.pop(bundle, None)
    if model_id is None:
        return machine.fail(UNKNOWN_BUNDLE, f"bundle {bundle} is not loaded")
    return int(unload(machine, model_id))
