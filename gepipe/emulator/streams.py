"""The calls of `acl.rt` about streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gepipe.emulator.api import acl_call
from gepipe.emulator.handles import Site

if TYPE_CHECKING:
    from gepipe.emulator.device import Context
    from gepipe.emulator.machine import Machine

INVALID_PARAM, NO_STREAM = 100000, 207008


def _create(machine: Machine, context: Context) -> tuple[int, int]:
    limit = machine.profile.limits.streams
    if context.device.streams >= limit:
        text = f"device {context.device.index} has {limit} streams already"
        return 0, machine.fail(NO_STREAM, text)
    return machine.new_stream(context, "stream").handle, 0


@acl_call("rt.create_stream", "", "vr", context=True)
def create_stream(machine: Machine, context: Context) -> tuple[int, int]:
    """Create a stream of the current context."""
    return _create(machine, context)


@acl_call("rt.create_stream_with_config", "II", "vr", context=True)
def create_stream_with_config(
    machine: Machine, context: Context, priority: int, _flag: int
) -> tuple[int, int]:
    """Create a stream with a priority, which the emulator ignores."""
    if priority > 7:
        return 0, machine.fail(107000, f"priority {priority} is not in 0..7")
    return _create(machine, context)


def _destroy(machine: Machine, context: Context, handle: int, *, force: bool) -> int:
    stream, code = machine.stream(context, handle, what="stream")
    if stream is None:
        return code
    if handle == 0:
        return machine.fail(INVALID_PARAM, "the default stream cannot be destroyed")
    if force:
        machine.observe(stream.clock)
        stream.abort()
    else:
        if not stream.is_idle:
            machine.lenient(f"{stream} is destroyed before it was synchronised")
        code = stream.wait()
        stream.end()
    machine.drop_stream(stream, f"{stream}, destroyed at {Site()}")
    return code


@acl_call("rt.destroy_stream", "k", context=True)
def destroy_stream(machine: Machine, context: Context, handle: int) -> int:
    """Wait for a stream and destroy it."""
    return _destroy(machine, context, handle, force=False)


@acl_call("rt.destroy_stream_force", "k", context=True)
def destroy_stream_force(machine: Machine, context: Context, handle: int) -> int:
    """Destroy a stream without waiting."""
    return _destroy(machine, context, handle, force=True)


@acl_call("rt.synchronize_stream", "k", context=True)
def synchronize_stream(machine: Machine, context: Context, handle: int) -> int:
    """Wait for a stream; failures of its tasks surface here."""
    stream, code = machine.stream(context, handle)
    return code if stream is None else stream.wait()


@acl_call("rt.synchronize_stream_with_timeout", "ki", context=True)
def synchronize_stream_with_timeout(
    machine: Machine, context: Context, handle: int, timeout_ms: int
) -> int:
    """Wait for a stream, but not for ever."""
    if timeout_ms < -1 or timeout_ms == 0:
        return machine.fail(INVALID_PARAM, f"timeout {timeout_ms} ms is neither -1 nor above 0")
    stream, code = machine.stream(context, handle)
    if stream is None:
        return code
    return stream.wait(None if timeout_ms == -1 else timeout_ms / 1000)


@acl_call("rt.stream_query", "k", "vr", context=True)
def stream_query(machine: Machine, context: Context, handle: int) -> tuple[int, int]:
    """Return 0 when a stream is complete, else 1."""
    stream, code = machine.stream(context, handle)
    if stream is None:
        return 0, code
    machine.schedule.pump()
    if stream.is_idle:
        machine.observe(stream.clock)
        return 0, 0
    return 1, 0
