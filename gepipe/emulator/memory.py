"""The calls of `acl.rt` about device memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gepipe.emulator.api import acl_call

if TYPE_CHECKING:
    from gepipe.emulator.blocks import Block
    from gepipe.emulator.device import Context
    from gepipe.emulator.machine import Machine

INVALID_PARAM, NO_MEMORY, BAD_FREE = 100000, 207001, 207002
ALIGNMENT: Final = 64
_POLICIES: Final = {*range(8), *(low | high for low in range(8) for high in (0x100, 0x1000))}
_KINDS: Final = {"ddr": {0, 2, 3, 6, 7}, "hbm": {1, 4, 5, 8, 9}}


def _malloc(
    machine: Machine, context: Context, size: int, policy: int, *, spare: int = 32
) -> tuple[int, int]:
    if size == 0:
        return 0, machine.fail(INVALID_PARAM, "size is 0")
    if policy not in _POLICIES:
        return 0, machine.fail(INVALID_PARAM, f"policy {policy} does not exist")
    memory = context.device.memory
    block = memory.allocate(size, spare=0 if policy & 0xFF in (6, 7) else spare)
    if block is None:
        free = memory.free_bytes
        text = f"{size} bytes do not fit into the {free} free bytes of {memory.total}"
        return 0, machine.fail(NO_MEMORY, text)
    return block.base, 0


@acl_call("rt.malloc", "ki", "vr", context=True)
def malloc(machine: Machine, context: Context, size: int, policy: int) -> tuple[int, int]:
    """Allocate device memory."""
    return _malloc(machine, context, size, policy)


@acl_call("rt.malloc_align32", "ki", "vr", context=True)
def malloc_align32(machine: Machine, context: Context, size: int, policy: int) -> tuple[int, int]:
    """Allocate device memory without the spare 32 bytes."""
    return _malloc(machine, context, size, policy, spare=0)


@acl_call("rt.malloc_cached", "ki", "vr", context=True)
def malloc_cached(machine: Machine, context: Context, size: int, policy: int) -> tuple[int, int]:
    """Allocate device memory that the CPU of the card caches."""
    return _malloc(machine, context, size, policy)


def _known(machine: Machine, ptr: int, size: int) -> int:
    if ptr == 0 or size == 0:
        return machine.fail(INVALID_PARAM, "pointer or size is 0")
    machine.host.locate(ptr, size)
    return 0


@acl_call("rt.mem_flush", "kk", context=True)
def mem_flush(machine: Machine, _context: Context, ptr: int, size: int) -> int:
    """Write cached device memory back; nothing to do here."""
    return _known(machine, ptr, size)


@acl_call("rt.mem_invalidate", "kk", context=True)
def mem_invalidate(machine: Machine, _context: Context, ptr: int, size: int) -> int:
    """Forget cached device memory; nothing to do here."""
    return _known(machine, ptr, size)


@acl_call("rt.free", "k")
def free_device(machine: Machine, ptr: int) -> int:
    """Free device memory."""
    if ptr == 0:
        return machine.fail(INVALID_PARAM, "pointer is 0")
    for device in machine.devices:
        if device.memory.owns(ptr):
            break
    else:
        if machine.host.pinned.starting_at(ptr):
            machine.misuse(f"{ptr:#x} is pinned memory, to be freed with acl.rt.free_host")
        machine.misuse(f"{ptr:#x} is {machine.host.describe(ptr)}")
    block = device.memory.blocks.starting_at(ptr)
    if block is None:
        machine.misuse(f"{ptr:#x} is {machine.host.describe(ptr)}")
    release_check(machine, block)
    device.memory.free(block)
    return 0


@acl_call("media.dvpp_malloc", "k", "vr", context=True)
def dvpp_malloc(machine: Machine, context: Context, size: int) -> tuple[int, int]:
    """Allocate device memory, all that the emulator knows of DVPP."""
    return _malloc(machine, context, size, 0)


@acl_call("media.dvpp_free", "k")
def dvpp_free(machine: Machine, ptr: int) -> int:
    """Free what `dvpp_malloc` allocated."""
    return int(free_device(machine, ptr))


def release_check(machine: Machine, block: Block) -> None:
    """Refuse to free what is still in use."""
    if block.holders:
        machine.misuse(f"{block} is still used by {block.holders[0]}")
    with machine.lock:
        host = machine.host_clock
        last = block.base + block.size
        use = block.uses.conflict(host, host, block.base, last, writes=True)
    if use is not None:
        machine.race(f"freeing {block}", use)


@acl_call("rt.get_mem_info", "i", "vvr", context=True)
def get_mem_info(machine: Machine, context: Context, kind: int) -> tuple[int, int, int]:
    """Return free and total bytes of a kind of memory; 0, 0 when the card has none of it."""
    if not 0 <= kind <= 9:
        return 0, 0, machine.fail(INVALID_PARAM, f"memory kind {kind} does not exist")
    if kind not in _KINDS[machine.profile.memory_kind]:
        if not machine.strict and machine.profile.memory_kind == "ddr" and kind in _KINDS["hbm"]:
            pass  # new releases redirect HBM to DDR
        else:
            return 0, 0, 0
    memory = context.device.memory
    return memory.free_bytes, memory.total, 0
