"""Device memory: addresses that the host cannot touch, backed by memory that it never sees.

A card's addresses are reserved without access, so a program that dereferences a device pointer on
the host faults, as it would with a real card. The bytes lie at a constant distance, in memory that
costs nothing until it is written. Addresses are used again as late as possible, so that a use
after free finds no other block in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gepipe.emulator import native
from gepipe.emulator.api import acl_call
from gepipe.emulator.blocks import Block, Blocks
from gepipe.emulator.errors import EmulatorError

if TYPE_CHECKING:
    from gepipe.emulator.device import Context
    from gepipe.emulator.machine import Machine
    from gepipe.emulator.profile import DeviceSpec
    from gepipe.emulator.shared import SharedCard

INVALID_PARAM, NO_MEMORY, BAD_FREE = 100000, 207001, 207002
ALIGNMENT: Final = 64
_HUGE_ALIGNMENT: Final = 512
_POISON: Final = 0xCD
_POISONED_BYTES: Final = 1 << 20
_POLICIES: Final = {*range(8), *(low | high for low in range(8) for high in (0x100, 0x1000))}
_KINDS: Final = {"ddr": {0, 2, 3, 6, 7}, "hbm": {1, 4, 5, 8, 9}}


def charged(size: int, *, spare: int = 32) -> int:
    """Return what an allocation takes, as the CANN manual says: round up to 32, and 32 more."""
    return (size + 31) // 32 * 32 + spare


class DeviceMemory:
    """The memory of one card."""

    def __init__(self, machine: Machine, device: int, spec: DeviceSpec) -> None:
        self._machine = machine
        self._device = device
        self.total = spec.memory_bytes
        self.used = self._foreign = spec.used_bytes
        self.peak = self.used
        self.blocks = Blocks()
        self.shared: SharedCard | None = None
        self._span = 0
        self.base = 0
        self._shift = 0
        self._next = 0

    def _map(self) -> None:
        for factor in (4, 2, 1):
            self._span = factor * max(self.total, 1 << 20)
            try:
                self.base = native.map_lazily(self._span)
            except MemoryError:
                if factor == 1:
                    raise
            else:
                break
        self._shift = 0
        if self._machine.profile.run_mode == "host":
            bytes_at, self.base = self.base, native.reserve(self._span)
            self._shift = bytes_at - self.base
        self._next = self.base

    @property
    def region(self) -> tuple[int, int]:
        """The card's first address, and how many it has."""
        return self.base, self._span

    def owns(self, address: int) -> bool:
        """Whether an address is one of this card's."""
        return self.base <= address < self.base + self._span

    @property
    def free_bytes(self) -> int:
        """What nobody has taken."""
        others = 0 if self.shared is None else self.shared.others_bytes()
        return max(self.total - self.used - others, 0)

    def reserve(self, nbytes: int) -> bool:
        """Take memory that needs no address, such as a model's own; return whether there was."""
        if nbytes > self.free_bytes:
            return False
        self._take(nbytes)
        self.peak = max(self.peak, self.used)
        return True

    def release(self, nbytes: int) -> None:
        """Give back what `reserve` took."""
        self._take(-nbytes)

    def share(self, card: SharedCard) -> None:
        """Share the card with other processes from now on."""
        self.shared = card
        self._take(0)

    def _take(self, nbytes: int) -> None:
        self.used += nbytes
        if self.shared is not None:
            self.shared.take_memory(self.used - self._foreign)

    def allocate(self, size: int, *, spare: int = 32) -> Block | None:
        """Allocate memory; None when there is not enough."""
        taken = charged(size, spare=spare)
        with self._machine.lock:
            if not self.reserve(taken):
                return None
            if not self._span:
                self._map()
            base = self._place(taken)
            block = Block(base, size, "device memory", self._shift, taken, self._device)
            self.blocks.add(block)
        if size <= _POISONED_BYTES:
            native.fill(base + self._shift, _POISON, size)
        return block

    def _place(self, taken: int) -> int:
        """Find addresses, those that were free for longest first."""
        for start in (self._next, self.base):
            at = -(-start // _HUGE_ALIGNMENT) * _HUGE_ALIGNMENT
            while at + taken <= self.base + self._span:
                before, after = self.blocks.before_and_after(at)
                if before is not None and before.base + before.taken > at:
                    at = before.base + before.taken
                elif after is not None and after.base < at + taken:
                    at = after.base + after.taken
                else:
                    self._next = at + taken
                    return at
                at = -(-at // _HUGE_ALIGNMENT) * _HUGE_ALIGNMENT
        raise EmulatorError("device memory is too fragmented for the emulator")

    def free(self, block: Block) -> None:
        """Free a block."""
        with self._machine.lock:
            self.blocks.remove(block)
            self.release(block.taken)
            # Not only the block's own pages: those that it shared with blocks that are gone too.
            before, after = self.blocks.before_and_after(block.base)
            first = before.base + before.size if before is not None else self.base
            last = after.base if after is not None else self.base + self._span
            first = max(first, block.base - native.PAGE)
            last = min(last, block.base + block.size + native.PAGE)
            native.forget(first + self._shift, last - first)

    def close(self) -> None:
        """Give the addresses back."""
        if self._span:
            native.unmap(self.base, self._span)
            if self._shift:
                native.unmap(self.base + self._shift, self._span)
            self._span = 0


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
