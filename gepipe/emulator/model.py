"""Loading and unloading models."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gepipe.emulator import native
from gepipe.emulator.api import acl_call
from gepipe.emulator.blocks import Block
from gepipe.emulator.devicememory import charged
from gepipe.emulator.errors import OmError
from gepipe.emulator.loaded import Model
from gepipe.emulator.om import SOC, OmModel, parse_om, read_om

if TYPE_CHECKING:
    from gepipe.emulator.device import Context
    from gepipe.emulator.machine import Machine

INVALID_PARAM, NOT_READY, MEMORY_TOO_SMALL = 100000, 145001, 145000
UNKNOWN_MODEL, WRONG_CONTEXT, NO_MEMORY, WRONG_SOC = 145003, 107004, 245000, 545002
NOT_SUPPORTED = 200001


def model_of(machine: Machine, model_id: int) -> Model | None:
    """Return a loaded model, or None and leave a message."""
    model = machine.models.get(model_id)
    if model is None:
        machine.fail(UNKNOWN_MODEL, f"model {model_id} is not loaded")
    return model


def own_model(machine: Machine, context: Context, model_id: int) -> tuple[Model | None, int]:
    """Return a model of the current context, or a code."""
    model = model_of(machine, model_id)
    if model is None:
        return None, UNKNOWN_MODEL
    if model.context is not context:
        text = f"{model} belongs to {model.context}, not {context}"
        return None, machine.fail(WRONG_CONTEXT, text)
    return model, 0


def read_file(machine: Machine, path: str) -> tuple[OmModel | None, int]:
    """Read a model file, or return a code."""
    try:
        return read_om(path), 0
    except OmError as error:
        return None, machine.fail(error.code, str(error))


def read_memory(machine: Machine, ptr: int, size: int) -> tuple[OmModel | None, int]:
    """Read a model from host memory, or return a code."""
    if ptr == 0 or size == 0:
        return None, machine.fail(INVALID_PARAM, "pointer or size is 0")
    block = machine.host.locate(ptr, size)
    if block is not None and block.kind == "device memory":
        machine.lenient(f"{ptr:#x} is device memory; a model is read from host memory")
        data = bytes((ctypes.c_char * size).from_address(ptr + block.shift))
    else:
        if (seen := machine.host.watched(ptr)) is not None and seen.is_dead:
            machine.lenient(f"reading {seen.name} through its address after it was dropped")
        try:
            buffer = ctypes.create_string_buffer(size)
        except (MemoryError, OverflowError):
            machine.misuse(f"{size} bytes at {ptr:#x}: the host cannot access them")
        readable = native.read_host(ctypes.addressof(buffer), ptr, size)
        data = buffer.raw[:readable]
    try:
        return parse_om(data), 0
    except OmError as error:
        return None, machine.fail(error.code, str(error))


@dataclass(frozen=True, slots=True)
class Lent:
    """Memory that the program lends a model: pointers and sizes, 0 for none."""

    work: int = 0
    work_bytes: int = 0
    weight: int = 0
    weight_bytes: int = 0


def load(
    machine: Machine, context: Context, source: tuple[OmModel | None, int], lent: Lent
) -> tuple[int, int]:
    """Load a model that was read; return its id and a code."""
    om, code = source
    if om is None:
        return 0, code
    if not machine.initialised:
        if machine.strict:
            return 0, machine.fail(NOT_READY, "acl.init was not called")
        machine.lenient("acl.init was not called")
    if om.soc not in (SOC, machine.profile.soc):
        text = f"the model is for {om.soc}, the device is {machine.profile.soc}"
        return 0, machine.fail(WRONG_SOC, text)
    blocks: list[Block] = []
    work_blocks: tuple[Block, ...] = ()
    taken = 0
    for what, ptr, size, needed in (
        ("work", lent.work, lent.work_bytes, om.work_bytes),
        ("weight", lent.weight, lent.weight_bytes, om.weight_bytes),
    ):
        if ptr == 0 or om.is_shape_range:
            taken += charged(needed)
            continue
        if size < needed:
            text = f"{what} memory of {size} bytes is smaller than the {needed} needed"
            return 0, machine.fail(MEMORY_TOO_SMALL, text)
        block = machine.host.locate(ptr, size)
        if block is None or block.kind != "device memory":
            machine.misuse(f"{what} memory {ptr:#x} is {machine.host.describe(ptr)}")
        if block.device != context.device.index:
            machine.misuse(f"{what} memory {ptr:#x} is of device {block.device}")
        blocks.append(block)
        if what == "work":
            work_blocks = (block,)
    memory = context.device.memory
    with machine.lock:
        if not memory.reserve(taken):
            free = memory.free_bytes
            text = f"{om.name} needs {taken} bytes, {free} of {memory.total} are free"
            return 0, machine.fail(NO_MEMORY, text)
        model = machine.models.add(om, context)
        model.taken, model.lent = taken, tuple(blocks)
        model.work_blocks = work_blocks
        for block in blocks:
            block.holders.append(str(model))
    return model.id, 0


@acl_call("mdl.load_from_file", "s", "vr", context=True)
def load_from_file(machine: Machine, context: Context, path: str) -> tuple[int, int]:
    """Load a model file."""
    return load(machine, context, read_file(machine, path), Lent())


@acl_call("mdl.load_from_mem", "kk", "vr", context=True)
def load_from_mem(machine: Machine, context: Context, ptr: int, size: int) -> tuple[int, int]:
    """Load a model from host memory."""
    return load(machine, context, read_memory(machine, ptr, size), Lent())


@acl_call("mdl.load_from_file_with_mem", "skkkk", "vr", context=True)
def load_from_file_with_mem(
    machine: Machine, context: Context, path: str, *lent: int
) -> tuple[int, int]:
    """Load a model file into memory of the program's."""
    return load(machine, context, read_file(machine, path), Lent(*lent))


@acl_call("mdl.load_from_mem_with_mem", "kkkkkk", "vr", context=True)
def load_from_mem_with_mem(
    machine: Machine, context: Context, ptr: int, size: int, *lent: int
) -> tuple[int, int]:
    """Load a model from host memory into memory of the program's."""
    return load(machine, context, read_memory(machine, ptr, size), Lent(*lent))


def _sizes(machine: Machine, source: tuple[OmModel | None, int]) -> tuple[int, int, int]:
    om, code = source
    if om is None:
        return 0, 0, code
    if om.is_shape_range:
        text = f"{om.name} takes ranges of shapes: its memory is not known before"
        return 0, 0, machine.fail(NOT_SUPPORTED, text)
    return om.work_bytes, om.weight_bytes, 0


@acl_call("mdl.query_size", "s", "vvr")
def query_size(machine: Machine, path: str) -> tuple[int, int, int]:
    """Return the work and weight memory of a model file."""
    return _sizes(machine, read_file(machine, path))


@acl_call("mdl.query_size_from_mem", "kk", "vvr")
def query_size_from_mem(machine: Machine, ptr: int, size: int) -> tuple[int, int, int]:
    """Return the work and weight memory of a model in host memory."""
    return _sizes(machine, read_memory(machine, ptr, size))


@acl_call("mdl.unload", "I")
def unload(machine: Machine, model_id: int) -> int:
    """Unload a model."""
    model = model_of(machine, model_id)
    if model is None:
        return UNKNOWN_MODEL
    context = machine.thread.context
    if context is not model.context:
        text = f"{model} is unloaded in another context than {model.context}"
        if not model.context.alive:
            machine.lenient(f"{model} is unloaded after its context was destroyed")
        elif machine.strict:
            return machine.fail(WRONG_CONTEXT, text)
        else:
            machine.lenient(text)
    host = machine.host_clock
    if (use := model.uses.conflict(host, host, 0, 1, writes=True)) is not None:
        machine.race(f"unloading {model}", use)
    with machine.lock:
        machine.models.remove(model)
        model.context.device.memory.release(model.taken)
        for block in model.lent:
            block.holders.remove(str(model))
    model.session = None
    return 0
