"""Copying and filling memory: `acl.rt.memcpy` and its family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gepipe.emulator.api import acl_call
from gepipe.emulator.ends import D2D, D2H, H2D, H2H, End, end_at, move, sample, stage, touch
from gepipe.emulator.handles import Site
from gepipe.emulator.memory import ALIGNMENT
from gepipe.emulator.stream import Stream
from gepipe.emulator.task import Task, TaskError

if TYPE_CHECKING:
    from gepipe.emulator.device import Context
    from gepipe.emulator.machine import Machine
    from gepipe.emulator.order import Uses

INVALID_PARAM, COPY_TOO_LARGE, NOT_SUPPORTED, COPY_FAILED = 100000, 107000, 207000, 507013
_DEFAULT: Final = 4
#: Kinds by their number: copy direction each stands for.
_DIRECTIONS: Final = {5: H2D, 6: D2D, 7: D2D}
_NAMES: Final = ("host to host", "host to device", "device to host", "device to device")
_WORTH_SLEEPING_S: Final = 40e-6


def _refused(machine: Machine, dst: int, room: int, src: int, count: int, kind: int) -> int:  # noqa: PLR0913, PLR0917 - they belong together
    if dst == 0 or src == 0:
        return machine.fail(INVALID_PARAM, "destination or source is 0")
    if not 0 <= kind <= 7:
        return machine.fail(INVALID_PARAM, f"copy kind {kind} does not exist")
    if count > room:
        return machine.fail(COPY_TOO_LARGE, f"{count} bytes do not fit into {room}")
    return 0


def _direction(target: End, source: End) -> int:
    return (H2H, H2D, D2H, D2D)[target.on_device + 2 * source.on_device]


def _kind_problem(kind: int, direction: int) -> str:
    if kind == _DEFAULT or _DIRECTIONS.get(kind, kind) == direction:
        return ""
    said = _NAMES[_DIRECTIONS.get(kind, kind)]
    return f"kind {kind} means {said}, but the addresses mean {_NAMES[direction]}"


def _peer_problem(machine: Machine, target: End, source: End) -> str:
    if target.block is None or source.block is None or not (target.on_device and source.on_device):
        return ""
    to, of = target.block.device, source.block.device
    if to == of or of in machine.devices[to].peers or to in machine.devices[of].peers:
        return ""
    return (
        f"device {to} and device {of} copy from each other only after "
        "acl.rt.device_enable_peer_access"
    )


def _occupy(context: Context, machine: Machine, ready_s: float, count: int, way: int) -> float:
    if way == H2H:
        return ready_s
    engine = "up" if way == H2D else "down"
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
    target, allowed = end_at(machine, dst, count, "writing")
    source, count = end_at(machine, src, allowed, "reading")
    way = _direction(target, source)
    for problem in (_kind_problem(kind, way), _peer_problem(machine, target, source)):
        if problem:
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
    target, allowed = end_at(machine, dst, count, "writing")
    source, count = end_at(machine, src, allowed, "reading")
    way = _direction(target, source)
    label = f"acl.rt.memcpy_async at {Site()}"
    pageable = target.block is None or source.block is None
    code, problem = _async_problem(machine, target, source, way, kind)
    if problem and not machine.strict:
        machine.lenient(problem)
        problem = ""

    staged = None if problem else stage(machine, target, source, count, way)

    def run(stream: Stream) -> int:
        if problem:
            machine.report.breaks.add(f"{label}: ", problem)
            raise TaskError(code, problem)
        if staged is not None and sample(source, count) != staged:
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


def _async_problem(
    machine: Machine, target: End, source: End, way: int, kind: int
) -> tuple[int, str]:
    if way == H2H:
        return NOT_SUPPORTED, "an asynchronous copy from host to host is not supported"
    if problem := _kind_problem(kind, way) or _peer_problem(machine, target, source):
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
