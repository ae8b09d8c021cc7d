"""The calls of `acl.rt` about pinned host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gepipe.emulator.api import acl_call
from gepipe.emulator.memory import release_check

if TYPE_CHECKING:
    from gepipe.emulator.device import Context
    from gepipe.emulator.machine import Machine

INVALID_PARAM, NO_HOST_MEMORY = 100000, 207001


@acl_call("rt.malloc_host", "k", "vr", context=True)
def malloc_host(machine: Machine, _context: Context, size: int) -> tuple[int, int]:
    """Allocate pinned host memory."""
    if size == 0:
        return 0, machine.fail(INVALID_PARAM, "size is 0")
    block = machine.host.allocate(size)
    if block is None:
        return 0, machine.fail(NO_HOST_MEMORY, f"{size} bytes of host memory do not exist")
    return block.base, 0


@acl_call("rt.free_host", "k")
def free_host(machine: Machine, ptr: int) -> int:
    """Free pinned host memory."""
    if ptr == 0:
        return machine.fail(INVALID_PARAM, "pointer is 0")
    block = machine.host.pinned.starting_at(ptr)
    if block is None:
        hint = "; free it with acl.rt.free" if machine.host.is_device(ptr) else ""
        machine.misuse(f"{ptr:#x} is {machine.host.describe(ptr)}{hint}")
    release_check(machine, block)
    machine.host.free(block)
    return 0
