"""Rarely used calls of `acl.rt`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gepipe.emulator.api import acl_call
from gepipe.emulator.copies import memcpy, memcpy_async
from gepipe.emulator.handles import Site

if TYPE_CHECKING:
    from gepipe.emulator.device import Context
    from gepipe.emulator.machine import Machine

INVALID_PARAM, NOT_SUPPORTED, NO_HOST_REGISTRATION = 100000, 207000, 507911
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows that are copied: where from and to, each with the distance of its rows, in bytes."""

    dst: int
    dst_pitch: int
    src: int
    src_pitch: int
    width: int
    height: int
    kind: int

    def copy(self, machine: Machine, copy_row: Callable[[int, int], int]) -> int:
        """Copy row by row until one fails; return the code."""
        pitches = self.dst_pitch, self.src_pitch
        if self.kind not in (1, 2) or self.width > min(pitches) or not self.width * self.height:
            text = f"{self.width} x {self.height} with pitches {pitches} and kind {self.kind}"
            return machine.fail(INVALID_PARAM, text)
        for row in range(self.height):
            code = copy_row(self.dst + row * self.dst_pitch, self.src + row * self.src_pitch)
            if code:
                return code
        return 0


@acl_call("rt.memcpy2d", "kkkkkki", context=True)
def memcpy2d(machine: Machine, context: Context, *shape: int) -> int:
    """Copy rows between host and device.

    Args:
        machine: The machine.
        context: The thread's context.
        shape: The fields of `_Rows`.
    """
    rows = _Rows(*shape)
    return rows.copy(
        machine,
        lambda dst, src: memcpy(machine, context, dst, rows.width, src, rows.width, rows.kind),
    )


@acl_call("rt.memcpy2d_async", "kkkkkkik", context=True)
def memcpy2d_async(machine: Machine, context: Context, *shape_and_stream: int) -> int:
    """Copy rows between host and device in a stream.

    Args:
        machine: The machine.
        context: The thread's context.
        shape_and_stream: The fields of `_Rows`, and the stream.
    """
    *shape, stream = shape_and_stream
    rows = _Rows(*shape)
    return rows.copy(
        machine,
        lambda dst, src: memcpy_async(
            machine, context, dst, rows.width, src, rows.width, rows.kind, stream
        ),
    )


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
