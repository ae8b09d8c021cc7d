"""The calls of `acl.rt` that give a thread its device and context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gepipe.emulator.api import acl_call
from gepipe.emulator.device import Context, Device
from gepipe.emulator.handles import Site

if TYPE_CHECKING:
    from gepipe.emulator.machine import Machine

INVALID_PARAM, UNINITIALISED, NO_DEVICE, NO_CONTEXT, BUSY = 100000, 100001, 107001, 107002, 507033


def _ready(machine: Machine) -> int:
    """Return 0 if ACL is initialised, or a code."""
    if machine.initialised:
        return 0
    if machine.strict or machine.finalised:
        return machine.fail(UNINITIALISED, "acl.init was not called, or acl.finalize was")
    machine.lenient("acl.init was not called")
    return 0


def _enter(machine: Machine, index: int) -> tuple[Device | None, int]:
    """Begin to use a device; return it, or a code."""
    if code := _ready(machine):
        return None, code
    device = machine.device(index)
    if device is None:
        return None, NO_DEVICE
    if not device.enter(machine.profile):
        limit = machine.profile.limits.processes
        text = f"device {index} is used by {limit} processes already, which is the limit"
        return None, machine.fail(BUSY, text)
    return device, 0


@acl_call("rt.set_device", "i")
def set_device(machine: Machine, index: int) -> int:
    """Give the thread a device, by its default context."""
    device, code = _enter(machine, index)
    if device is None:
        return code
    with machine.lock:
        if device.default is None:
            device.default = Context(device, explicit=False)
            device.default.handle = machine.handles.add(device.default)
        device.set_count += 1
    machine.thread.context = device.default
    return 0


def _drop(machine: Machine, context: Context) -> None:
    """End a context."""
    context.alive = False
    if context.default_stream:
        stream, _ = machine.stream(context, 0)
        assert stream is not None
        machine.observe(stream.clock)
        stream.end()
        machine.drop_stream(stream, "a default stream that is gone")
    machine.handles.remove(context.handle, f"{context}, destroyed at {Site()}")
    if machine.thread.context is context:
        machine.thread.context = None


def _reset(machine: Machine, index: int, *, force: bool) -> int:
    device = machine.device(index)
    if device is None:
        return NO_DEVICE
    with machine.lock:
        if device.set_count == 0:
            return machine.fail(NO_CONTEXT, f"device {index} is not set")
        device.set_count = 0 if force else device.set_count - 1
        if device.set_count:
            return 0
    default, device.default = device.default, None
    code = 0
    if default is not None:
        if default.default_stream:
            stream, _ = machine.stream(default, 0)
            assert stream is not None
            code = stream.wait()
        held = [s for s in machine.streams_of(device) if s.context is default and not s.is_default]
        if held:
            machine.lenient(f"device {index} is reset before {held[0]} is destroyed")
        for stream in held:
            code = stream.wait() or code
        _drop(machine, default)
    if not any(each.device is device for each in machine.handles.all(Context)):
        device.leave()
    return code


@acl_call("rt.reset_device", "i")
def reset_device(machine: Machine, index: int) -> int:
    """Undo one `set_device`; the last one releases the device."""
    return _reset(machine, index, force=False)


@acl_call("rt.reset_device_force", "i")
def reset_device_force(machine: Machine, index: int) -> int:
    """Undo every `set_device`."""
    return _reset(machine, index, force=True)


@acl_call("rt.get_device", "|O", "vr")
def get_device(machine: Machine, *_: object) -> tuple[int, int]:
    """Return the device of the thread's context."""
    context = machine.thread.context
    if context is None or not context.alive:
        return 0, machine.fail(NO_CONTEXT, "this thread has no device")
    return context.device.index, 0


def _context_of(machine: Machine, handle: int) -> tuple[Context | None, int]:
    """Return the context of a handle, or a code."""
    if handle == 0:
        return None, machine.fail(INVALID_PARAM, "context is 0")
    context = machine.handles.get(handle, Context)
    if context is None:
        if machine.finalised:
            return None, machine.fail(NO_CONTEXT, f"context {handle:#x} is gone")
        machine.misuse(f"context {handle:#x} is {machine.handles.fate(handle)}")
    return context, 0


@acl_call("rt.create_context", "i", "vr")
def create_context(machine: Machine, index: int) -> tuple[int, int]:
    """Create a context and make it the thread's."""
    device, code = _enter(machine, index)
    if device is None:
        return 0, code
    context = Context(device, explicit=True)
    context.handle = machine.handles.add(context)
    machine.thread.context = context
    return context.handle, 0


@acl_call("rt.set_context", "k")
def set_context(machine: Machine, handle: int) -> int:
    """Make a context the thread's."""
    context, code = _context_of(machine, handle)
    if context is None:
        return code
    machine.thread.context = context
    return 0


@acl_call("rt.get_context", "", "vr")
def get_context(machine: Machine) -> tuple[int, int]:
    """Return the thread's context."""
    context = machine.thread.context
    if context is None or not context.alive:
        return 0, machine.fail(NO_CONTEXT, "this thread has no context")
    return context.handle, 0


@acl_call("rt.destroy_context", "k")
def destroy_context(machine: Machine, handle: int) -> int:
    """Destroy a context that was created, not a default one."""
    context, code = _context_of(machine, handle)
    if context is None:
        return code
    if not context.explicit:
        machine.misuse(f"{context} belongs to the device and cannot be destroyed")
    held = [s for s in machine.streams_of(context.device) if s.context is context]
    code = 0
    for stream in held:
        if not stream.is_default:
            machine.lenient(f"{context} is destroyed before {stream}")
        code = stream.wait() or code
    device = context.device
    if device.set_count == 0 and device.default is None and machine.initialised:
        machine.note(f"{context} outlived reset_device")
    _drop(machine, context)
    if device.default is None and not any(
        each.device is device for each in machine.handles.all(Context)
    ):
        device.leave()
    return code
