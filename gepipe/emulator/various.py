"""Rarely used calls of `acl.rt`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gepipe.emulator.api import acl_call
from gepipe.emulator.copies import memcpy, memcpy_async
from gepipe.emulator.handles import Site

if TYPE_CHECKING:
    from gepipe.emulator.device import Context
    from gepipe.emulator.machine import Machine

INVALID_PARAM, NOT_SUPPORTED, NO_HOST_REGISTRATION = 100000, 207000, 507911
_PAGE = 4096


def _rows(machine: Machine, pitches: tuple[int, int], width: int, height: int, kind: int) -> int:
    if kind not in (1, 2) or width > min(pitches) or not width or not height:
        text = f"{width} x {height} with pitches {pitches} and kind {kind}"
        return machine.fail(INVALID_PARAM, text)
    return 0


@acl_call("rt.memcpy2d", "kkkkkki", context=True)
def memcpy2d(  # noqa: PLR0913, PLR0917 - acl has as many
    machine: Machine,
    context: Context,
    dst: int,
    dst_pitch: int,
    src: int,
    src_pitch: int,
    width: int,
    height: int,
    kind: int,
) -> int:
    """Copy rows between host and device."""
    code = _rows(machine, (dst_pitch, src_pitch), width, height, kind)
    for row in range(0 if code else height):
        to, from_ = dst + row * dst_pitch, src + row * src_pitch
        code = code or memcpy(machine, context, to, width, from_, width, kind)
    return int(code)


@acl_call("rt.memcpy2d_async", "kkkkkkik", context=True)
def memcpy2d_async(  # noqa: PLR0913, PLR0917 - acl has as many
    machine: Machine,
    context: Context,
    dst: int,
    dst_pitch: int,
    src: int,
    src_pitch: int,
    width: int,
    height: int,
    kind: int,
    stream: int,
) -> int:
    """Copy rows between host and device in a stream."""
    code = _rows(machine, (dst_pitch, src_pitch), width, height, kind)
    for row in range(0 if code else height):
        to, from_ = dst + row * dst_pitch, src + row * src_pitch
        code = code or memcpy_async(machine, context, to, width, from_, width, kind, stream)
    return int(code)


@acl_call("rt.host_register", "kKi", "vr", context=True)
def host_register(
    machine: Machine, _context: Context, ptr: int, size: int, kind: int
) -> tuple[int, int]:
    """Let the device reach host memory."""
    if ptr == 0 or size == 0 or kind != 0 or ptr % _PAGE:
        text = f"{ptr:#x} must be on a {_PAGE}-byte boundary, size above 0, and kind 0"
        return 0, machine.fail(INVALID_PARAM, text)
    if ptr in machine.registered:
        return 0, machine.fail(507910, f"{ptr:#x} is registered already")
    machine.registered[ptr] = str(Site())
    return machine.handles.add(machine.registered), 0


@acl_call("rt.host_unregister", "k", context=True)
def host_unregister(machine: Machine, _context: Context, ptr: int) -> int:
    """End what `host_register` began."""
    if machine.registered.pop(ptr, None) is None:
        return machine.fail(NO_HOST_REGISTRATION, f"{ptr:#x} is not registered")
    return 0


@acl_call("rt.peek_at_last_error", "i")
def peek_at_last_error(machine: Machine, _level: int) -> int:
    """Return the thread's last failure of the runtime."""
    return machine.thread.last_error


@acl_call("rt.get_last_error", "i")
def get_last_error(machine: Machine, _level: int) -> int:
    """Return and clear the thread's last failure of the runtime."""
    code, machine.thread.last_error = machine.thread.last_error, 0
    return code


@acl_call("rt.set_op_execute_timeout", "I")
def set_op_execute_timeout(_machine: Machine, _seconds: int) -> int:
    """Limit how long an operator takes; the emulator's take what the profile says."""
    return 0


@acl_call("rt.get_thread_last_task_id", "", "vr")
def get_thread_last_task_id(_machine: Machine) -> tuple[int, int]:
    """Return the thread's last task, for diagnosis."""
    return 0, 0


@acl_call("rt.set_exception_info_callback", "O")
def set_exception_info_callback(_machine: Machine, _call: Any) -> int:
    """Be told about failing operators; the emulator has no operators."""
    return 0


@acl_call("rt.reduce_async", "kkkiik", context=True)
def reduce_async(machine: Machine, _context: Context, *_args: int) -> int:
    """Reduce device memory, which the emulator does not."""
    return machine.fail(NOT_SUPPORTED, "acl.rt.reduce_async is out of the emulator's scope")
