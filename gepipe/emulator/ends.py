"""The two ends of a copy: where they lie, what they allow, and who else uses them."""

from __future__ import annotations

import ctypes
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gepipe.emulator import native
from gepipe.emulator.blocks import Block

if TYPE_CHECKING:
    from gepipe.emulator.machine import Machine

H2H, H2D, D2H, D2D = range(4)
_SAMPLE_BYTES: Final = 1024
_SPOILT: Final = 0xDD
_PIECE_BYTES: Final = 1 << 20


@dataclass(slots=True)
class End:
    """One end of a copy.

    Attributes:
        address: As the program gave it.
        block: The device or pinned block it lies in; None for ordinary host memory.
        known: Whether all bytes are known to be accessible.
        room: The bytes of the data buffer that it is given by, if it is.
    """

    address: int
    block: Block | None
    known: bool
    room: int = 0

    @property
    def on_device(self) -> bool:
        """Whether it is device memory."""
        return self.block is not None and self.block.kind == "device memory"

    @property
    def real(self) -> int:
        """The address of the bytes."""
        return self.address + (self.block.shift if self.block is not None else 0)


def end_at(machine: Machine, address: int, count: int, verb: str) -> tuple[End, int]:
    """Look at one end of a copy; return it, and how many bytes it allows."""
    block = machine.host.locate(address, count)
    if block is not None:
        return End(address, block, known=True), count
    seen = machine.host.watched(address)
    if seen is None:
        return End(address, None, known=False), count
    if seen.is_dead:
        machine.lenient(f"{verb} {seen.name} through its address after the object was dropped")
    room = seen.base + seen.size - address
    if count > room:
        machine.lenient(f"{verb} {count} bytes where {seen.name} has only {room}")
        count = room
    return End(address, None, known=True), count


def move(machine: Machine, target: End, source: End, count: int) -> None:
    """Copy bytes; bytes that cannot be accessed are a rule break, never a crash."""
    if source.known and target.known:
        native.copy(target.real, source.real, count)
        return
    if source.known:
        moved = native.write_host(target.real, source.real, count)
    elif target.known:
        moved = native.read_host(target.real, source.real, count)
    else:
        moved = _move_piecewise(target.real, source.real, count)
    if moved != count:
        end = source if target.known else target
        machine.misuse(f"{count} bytes at {end.address:#x}: the host cannot access them")


def _move_piecewise(target: int, source: int, count: int) -> int:
    """Copy from and to memory of unknown validity; return how many bytes were copied."""
    buffer = ctypes.create_string_buffer(min(count, _PIECE_BYTES))
    between = ctypes.addressof(buffer)
    for last in (source + count - 1, target + count - 1):
        if native.read_host(between, last, 1) != 1:
            return 0
    moved = 0
    while moved < count:
        wanted = min(count - moved, _PIECE_BYTES)
        readable = native.read_host(between, source + moved, wanted)
        written = native.write_host(target + moved, between, readable)
        moved += written
        if written < wanted:
            break
    return moved


def touch(machine: Machine, end: End, count: int, *, writes: bool, label: str) -> None:
    """Refuse a use by the host that is not ordered after those of streams."""
    if end.block is not None and end.block.uses.accesses:
        with machine.lock:
            host = machine.host_clock
            last = end.address + count
            use = end.block.uses.conflict(host, host, end.address, last, writes=writes)
        if use is not None:
            machine.race(label, use)


def stage(machine: Machine, target: End, source: End, count: int, way: int) -> int | None:
    """Prepare to find a program that touches host memory too early.

    Host memory that was filled before a copy to the device must still be the same when the copy
    runs; its sample is returned. Host memory that a copy from the device will fill is spoilt in
    strict mode, as nobody may rely on what it holds. Neither, if a queued task uses the memory.
    """
    host = source if way == H2D else target
    if way not in (H2D, D2H) or host.block is None:
        return None
    with machine.lock:
        first, last = host.address, host.address + count
        if host.block.uses.conflict(machine.host_clock, {}, first, last, writes=way == D2H):
            return None
    if way == H2D:
        return sample(source, count)
    if machine.strict:
        native.fill(target.real, _SPOILT, min(count, _SAMPLE_BYTES))
    return None


def sample(end: End, count: int) -> int:
    """Return a check sum of the first and the last bytes."""
    size = min(count, _SAMPLE_BYTES)
    first = zlib.crc32(ctypes.string_at(end.real, size))
    return zlib.crc32(ctypes.string_at(end.real + count - size, size), first)
