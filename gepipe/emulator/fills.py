"""Filling memory: `acl.rt.memset` and its asynchronous form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gepipe.emulator import native
from gepipe.emulator.api import acl_call
from gepipe.emulator.ends import End, touch
from gepipe.emulator.handles import Site
from gepipe.emulator.stream import Stream
from gepipe.emulator.task import Task

if TYPE_CHECKING:
    from gepipe.emulator.device import Context
    from gepipe.emulator.machine import Machine

INVALID_PARAM, TOO_LARGE = 100000, 107000


def _fill(machine: Machine, ptr: int, room: int, value: int, count: int) -> tuple[End | None, int]:
    if ptr == 0:
        return None, machine.fail(INVALID_PARAM, "pointer is 0")
    if count > room:
        return None, machine.fail(TOO_LARGE, f"{count} bytes do not fit into {room}")
    if count == 0:
        return None, 0
    block = machine.host.locate(ptr, count)
    if block is None:
        machine.lenient(f"{ptr:#x} is not memory of ACL")
        return None, machine.fail(INVALID_PARAM, f"{ptr:#x} is not memory of ACL")
    return End(ptr, block, known=True), value & 0xFF


@acl_call("rt.memset", "kkik", context=True)
def memset(machine: Machine, _context: Context, ptr: int, room: int, value: int, count: int) -> int:
    """Fill memory now."""
    end, result = _fill(machine, ptr, room, value, count)
    if end is None:
        return result
    touch(machine, end, count, writes=True, label="this filling")
    native.fill(end.real, result, count)
    return 0


@acl_call("rt.memset_async", "kkikk", context=True)
def memset_async(  # noqa: PLR0913, PLR0917 - acl has as many
    machine: Machine,
    context: Context,
    ptr: int,
    room: int,
    value: int,
    count: int,
    stream_handle: int,
) -> int:
    """Fill memory in a stream."""
    stream, code = machine.stream(context, stream_handle)
    if stream is None:
        return code
    end, result = _fill(machine, ptr, room, value, count)
    if end is None or end.block is None:
        return result

    def run(_: Stream) -> int:
        machine.host.locate(end.address, count)
        native.fill(end.real, result, count)
        return 0

    label = f"acl.rt.memset_async at {Site()}"
    stream.submit(Task(run, label), ((end.block.uses, ptr, ptr + count, True),))
    return 0
