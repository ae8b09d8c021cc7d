"""Copying and filling memory: `acl.rt.memcpy` and its family."""

from __future__ import annotations

import ctypes
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gepipe.emulator import native
from gepipe.emulator.api import acl_call
from gepipe.emulator.handles import Site
from gepipe.emulator.memory import ALIGNMENT, Block
from gepipe.emulator.stream import Stream, Task

if TYPE_CHECKING:
    from gepipe.emulator.device import Context
    from gepipe.emulator.machine import Machine
    from gepipe.emulator.order import Uses

INVALID_PARAM, COPY_TOO_LARGE, NOT_SUPPORTED, COPY_FAILED = 100000, 107000, 207000, 507013
_H2H, _H2D, _D2H, _D2D, _DEFAULT = range(5)
#: Kinds by their number: copy direction each stands for.
_DIRECTIONS: Final = {5: _H2D, 6: _D2D, 7: _D2D}
_NAMES: Final = ("host to host", "host to device", "device to host", "device to device")
_WORTH_SLEEPING_S: Final = 40e-6
_SAMPLE_BYTES: Final = 1024
_SPOILT: Final = 0xDD


@dataclass(slots=True)
class End:
    """One end of a copy.

    Attributes:
        address: As the program gave it.
        block: The device or pinned block it lies in; None for ordinary host memory.
        known: Whether all bytes are known to be accessible.
    """

    address: int
    block: Block | None
    known: bool

    @property
    def on_device(self) -> bool:
        """Whether it is device memory."""
        return self.block is not None and self.block.kind == "device memory"

    @property
    def real(self) -> int:
        """The address of the bytes."""
        return self.address + (self.block.shift if self.block is not None else 0)


def _end(machine: Machine, address: int, count: int, verb: str) -> tuple[End, int]:
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
        buffer = ctypes.create_string_buffer(count)
        moved = native.read_host(ctypes.addressof(buffer), source.real, count)
        moved = native.write_host(target.real, ctypes.addressof(buffer), moved)
    if moved != count:
        end = source if target.known else target
        machine.misuse(f"{count} bytes at {end.address:#x}: the host cannot access them")


def touch(machine: Machine, end: End, count: int, *, writes: bool, label: str) -> None:
    """Refuse a use by the host that is not ordered after those of streams."""
    if end.block is not None and end.block.uses.accesses:
        with machine.lock:
            host = machine.host_clock
            last = end.address + count
            use = end.block.uses.conflict(host, host, end.address, last, writes=writes)
        if use is not None:
            machine.race(label, use)


def _refused(machine: Machine, dst: int, room: int, src: int, count: int, kind: int) -> int:  # noqa: PLR0913, PLR0917 - they belong together
    if dst == 0 or src == 0:
        return machine.fail(INVALID_PARAM, "destination or source is 0")
    if not 0 <= kind <= 7:
        return machine.fail(INVALID_PARAM, f"copy kind {kind} does not exist")
    if count > room:
        return machine.fail(COPY_TOO_LARGE, f"{count} bytes do not fit into {room}")
    return 0


def _direction(target: End, source: End) -> int:
    return (_H2H, _H2D, _D2H, _D2D)[target.on_device + 2 * source.on_device]


def _kind_problem(kind: int, direction: int) -> str:
    if kind == _DEFAULT or _DIRECTIONS.get(kind, kind) == direction:
        return ""
    said = _NAMES[_DIRECTIONS.get(kind, kind)]
    return f"kind {kind} means {said}, but the addresses mean {_NAMES[direction]}"


def _occupy(context: Context, machine: Machine, ready_s: float, count: int, way: int) -> float:
    if way == _H2H:
        return ready_s
    engine = "up" if way == _H2D else "down"
    return context.device.occupy(engine, ready_s, machine.profile.copy.seconds(count))


@acl_call("rt.memcpy", "kkkki", context=True)
def memcpy(  # noqa: PLR0913, PLR0917 - acl has as many
    machine: Machine, context: Context, dst: int, room: int, src: int, count: int, kind: int
) -> int:
    """Copy memory now; does not wait for streams."""
    if code := _refused(machine, dst, room, src, count, kind):
        return code
    if count == 0:
        return 0
    target, allowed = _end(machine, dst, count, "writing")
    source, count = _end(machine, src, allowed, "reading")
    way = _direction(target, source)
    if problem := _kind_problem(kind, way):
        machine.lenient(problem)
    touch(machine, source, count, writes=False, label="this copy")
    touch(machine, target, count, writes=True, label="this copy")
    now_s = machine.schedule.now()
    end_s = _occupy(context, machine, now_s, count, way)
    move(machine, target, source, count)
    if end_s - machine.schedule.now() > _WORTH_SLEEPING_S:
        machine.schedule.sleep_until(end_s, hold_gil=machine.profile.hold_gil)
    return 0


@acl_call("rt.memcpy_async", "kkkkik", context=True)
def memcpy_async(  # noqa: PLR0913, PLR0917 - acl has as many
    machine: Machine,
    context: Context,
    dst: int,
    room: int,
    src: int,
    count: int,
    kind: int,
    stream_handle: int,
) -> int:
    """Copy memory in a stream."""
    if code := _refused(machine, dst, room, src, count, kind):
        return code
    stream, code = machine.stream(context, stream_handle)
    if stream is None or count == 0:
        return code
    target, allowed = _end(machine, dst, count, "writing")
    source, count = _end(machine, src, allowed, "reading")
    way = _direction(target, source)
    label = f"acl.rt.memcpy_async at {Site()}"
    pageable = target.block is None or source.block is None
    code, problem = _async_problem(target, source, way, kind)
    if problem and not machine.strict:
        machine.lenient(problem)
        problem = ""

    staged = None if problem else _stage(machine, target, source, count, way)

    def run(stream: Stream) -> int:
        if problem:
            machine.report.breaks.append(f"{label}: {problem}")
            stream.error = (code, f"{label}: {problem}")
            return code
        if staged is not None and _sample(source, count) != staged:
            machine.lenient(f"{label}: the host memory was changed before it was copied")
        for end in (target, source):
            if end.block is not None:
                machine.host.locate(end.address, count)
        end_s = _occupy(context, machine, stream.begin_s(task), count, way)
        move(machine, target, source, count)
        machine.schedule.sleep_until(end_s)
        stream.now_s = end_s
        return 0

    task = Task(run, label)
    stream.submit(task, _uses(target, source, count))
    return stream.wait() if pageable and not problem else 0


def _stage(machine: Machine, target: End, source: End, count: int, way: int) -> int | None:
    """Prepare to find a program that touches host memory too early.

    Host memory that was filled before a copy to the device must still be the same when the copy
    runs; its sample is returned. Host memory that a copy from the device will fill is spoilt in
    strict mode, as nobody may rely on what it holds. Neither, if a queued task uses the memory.
    """
    host = source if way == _H2D else target
    if way not in (_H2D, _D2H) or host.block is None:
        return None
    with machine.lock:
        first, last = host.address, host.address + count
        if host.block.uses.conflict(machine.host_clock, {}, first, last, writes=way == _D2H):
            return None
    if way == _H2D:
        return _sample(source, count)
    if machine.strict:
        native.fill(target.real, _SPOILT, min(count, _SAMPLE_BYTES))
    return None


def _sample(end: End, count: int) -> int:
    """Return a check sum of the first and the last bytes."""
    size = min(count, _SAMPLE_BYTES)
    first = zlib.crc32(ctypes.string_at(end.real, size))
    return zlib.crc32(ctypes.string_at(end.real + count - size, size), first)


def _async_problem(target: End, source: End, way: int, kind: int) -> tuple[int, str]:
    if way == _H2H:
        return NOT_SUPPORTED, "an asynchronous copy from host to host is not supported"
    if problem := _kind_problem(kind, way):
        return COPY_FAILED, problem
    for name, end in (("destination", target), ("source", source)):
        if end.block is None:
            text = f"the {name} {end.address:#x} does not come from acl.rt.malloc_host"
            return COPY_FAILED, text
        if end.address % ALIGNMENT:
            text = f"the {name} {end.address:#x} is not on a {ALIGNMENT}-byte boundary"
            return COPY_FAILED, text
    return 0, ""


def _uses(target: End, source: End, count: int) -> tuple[tuple[Uses, int, int, bool], ...]:
    return tuple(
        (end.block.uses, end.address, end.address + count, writes)
        for end, writes in ((source, False), (target, True))
        if end.block is not None
    )


def _fill(machine: Machine, ptr: int, room: int, value: int, count: int) -> tuple[End | None, int]:
    if ptr == 0:
        return None, machine.fail(INVALID_PARAM, "pointer is 0")
    if count > room:
        return None, machine.fail(COPY_TOO_LARGE, f"{count} bytes do not fit into {room}")
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
