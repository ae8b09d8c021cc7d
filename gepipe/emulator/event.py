"""Events: marks in streams that other streams and the host wait for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gepipe.emulator.api import acl_call
from gepipe.emulator.handles import Site
from gepipe.emulator.order import Clock, merge
from gepipe.emulator.schedule import Latch
from gepipe.emulator.stream import Stream, Task

if TYPE_CHECKING:
    from gepipe.emulator.device import Context
    from gepipe.emulator.machine import Machine

INVALID_PARAM, WRONG_PARAM, WRONG_CONTEXT = 100000, 107000, 107003
NO_TIME, TIME_REVERSED, NO_EVENT, SYNC_TIMEOUT = 107006, 107007, 207007, 507047
_SYNC, _TIME_LINE = 0x1, 0x8
_FLAGS = 0x1 | 0x2 | 0x8 | 0x10 | 0x20 | 0x40


@dataclass(eq=False, slots=True)
class Record:
    """One recording of an event.

    Attributes:
        clock: What is done once it happened.
        time_s: When it happened, by the emulated hardware's time.
    """

    stream: Stream
    clock: Clock
    latch: Latch = field(default_factory=Latch)
    time_s: float = 0.0


@dataclass(eq=False, slots=True)
class Event:
    """An event.

    Attributes:
        record: Its last recording; None before, and after a reset.
        waits: What opens when each stream that waits for it goes on.
    """

    context: Context
    flags: int
    renewable: bool = False
    record: Record | None = None
    waits: list[Latch] = field(default_factory=list)
    site: Site = field(default_factory=Site)

    def __str__(self) -> str:
        return f"event made at {self.site}"


def _event(machine: Machine, context: Context | None, handle: int) -> tuple[Event | None, int]:
    if handle == 0:
        return None, machine.fail(INVALID_PARAM, "event is 0")
    event = machine.handles.get(handle, Event)
    if event is None:
        machine.misuse(f"event {handle:#x} is {machine.handles.fate(handle)}")
    if context is not None and event.context is not context:
        text = f"{event} belongs to {event.context}, not {context}"
        return None, machine.fail(WRONG_CONTEXT, text)
    return event, 0


def _create(machine: Machine, context: Context, flags: int, *, renewable: bool) -> tuple[int, int]:
    if flags == 0 or flags & ~_FLAGS:
        return 0, machine.fail(INVALID_PARAM, f"event flags {flags:#x} do not exist")
    limit = machine.profile.limits.events
    if context.device.events >= limit:
        text = f"device {context.device.index} has {limit} events already"
        return 0, machine.fail(NO_EVENT, text)
    context.device.events += 1
    return machine.handles.add(Event(context, flags, renewable)), 0


@acl_call("rt.create_event", "*", "vr", context=True)
def create_event(machine: Machine, context: Context) -> tuple[int, int]:
    """Create an event for waiting and timing."""
    return _create(machine, context, _SYNC | _TIME_LINE, renewable=False)


@acl_call("rt.create_event_with_flag", "I", "vr", context=True)
def create_event_with_flag(machine: Machine, context: Context, flags: int) -> tuple[int, int]:
    """Create an event for what the flags say."""
    return _create(machine, context, flags, renewable=False)


@acl_call("rt.create_event_ex_with_flag", "I", "vr", context=True)
def create_event_ex_with_flag(machine: Machine, context: Context, flags: int) -> tuple[int, int]:
    """Create an event that may be recorded again and again."""
    return _create(machine, context, flags, renewable=True)


@acl_call("rt.destroy_event", "k")
def destroy_event(machine: Machine, handle: int) -> int:
    """Destroy an event, which need not have happened."""
    event, code = _event(machine, None, handle)
    if event is None:
        return code
    event.context.device.events -= 1
    machine.handles.remove(handle, f"{event}, destroyed at {Site()}")
    return 0


@acl_call("rt.record_event", "kk", context=True)
def record_event(machine: Machine, context: Context, handle: int, stream_handle: int) -> int:
    """Mark the point that a stream was filled to."""
    event, code = _event(machine, context, handle)
    if event is None:
        return code
    stream, code = machine.stream(context, stream_handle)
    if stream is None:
        return code
    record = Record(stream, {})

    def happen(stream: Stream) -> int:
        record.time_s = stream.now_s = stream.begin_s(task)
        record.latch.open()
        return 0

    task = Task(happen, "acl.rt.record_event", always=True)
    stream.submit(task, mark=record.clock)
    event.record = record
    return 0


@acl_call("rt.stream_wait_event", "kk", context=True)
def stream_wait_event(machine: Machine, context: Context, stream_handle: int, handle: int) -> int:
    """Let a stream wait for an event."""
    stream, code = machine.stream(context, stream_handle)
    if stream is None:
        return code
    event, code = _event(machine, context, handle)
    if event is None:
        return code
    record = event.record
    if record is None:
        machine.lenient(f"{event} was not recorded, so there is nothing to wait for")
        return 0
    if not event.flags & _SYNC:
        machine.lenient(f"{event} was made without the flag SYNC, 0x1, so streams cannot wait")
    gone_on = Latch()
    event.waits = [each for each in event.waits if not each.done]
    event.waits.append(gone_on)

    def go_on(stream: Stream) -> int:
        stream.now_s = max(stream.begin_s(task), record.time_s)
        gone_on.open()
        return 0

    task = Task(go_on, "acl.rt.stream_wait_event", after=record.latch, always=True)
    with machine.lock:
        merge(stream.clock, record.clock)
        stream.submit(task)
    return 0


@acl_call("rt.reset_event", "kk", context=True)
def reset_event(machine: Machine, context: Context, handle: int, stream_handle: int) -> int:
    """Make an event that happened one that did not, for those who wait later."""
    event, code = _event(machine, context, handle)
    if event is None:
        return code
    stream, code = machine.stream(context, stream_handle)
    if stream is None:
        return code
    if not event.flags & _SYNC or event.renewable:
        return machine.fail(WRONG_PARAM, f"{event} cannot be reset: see its flags")
    event.record = None
    return 0


def _wait(machine: Machine, handle: int, timeout_s: float | None) -> int:
    event, code = _event(machine, None, handle)
    if event is None:
        return code
    record = event.record
    if record is None:
        return 0
    if not machine.schedule.wait(record.latch, timeout_s):
        return machine.fail(SYNC_TIMEOUT, f"{event} did not happen in {timeout_s} s")
    machine.observe(record.clock)
    lost = event.context.device.lost
    return machine.fail(lost, f"device {event.context.device.index} is lost") if lost else 0


@acl_call("rt.synchronize_event", "k", context=True)
def synchronize_event(machine: Machine, _context: Context, handle: int) -> int:
    """Wait for an event. Failures of tasks do not show here, but at their stream."""
    return _wait(machine, handle, None)


@acl_call("rt.synchronize_event_with_timeout", "ki", context=True)
def synchronize_event_with_timeout(
    machine: Machine, _context: Context, handle: int, timeout_ms: int
) -> int:
    """Wait for an event, but not for ever."""
    if timeout_ms < -1 or timeout_ms == 0:
        return machine.fail(INVALID_PARAM, f"timeout {timeout_ms} ms is neither -1 nor above 0")
    return _wait(machine, handle, None if timeout_ms == -1 else timeout_ms / 1000)


def _happened(machine: Machine, event: Event) -> bool:
    machine.schedule.pump()
    if event.record is None:
        return True
    if event.record.latch.done:
        machine.observe(event.record.clock)
    return event.record.latch.done


@acl_call("rt.query_event", "k", "vr", context=True)
def query_event(machine: Machine, _context: Context, handle: int) -> tuple[int, int]:
    """Return 0 when an event happened, else 1."""
    event, code = _event(machine, None, handle)
    if event is None:
        return 0, code
    return int(not _happened(machine, event)), 0


@acl_call("rt.query_event_status", "k", "vr", context=True)
def query_event_status(machine: Machine, _context: Context, handle: int) -> tuple[int, int]:
    """Return 1 when an event happened, else 0."""
    event, code = _event(machine, None, handle)
    if event is None:
        return 0, code
    if event.record is None:
        return int(event.renewable), 0
    return int(_happened(machine, event)), 0


@acl_call("rt.query_event_wait_status", "k", "vr", context=True)
def query_event_wait_status(machine: Machine, _context: Context, handle: int) -> tuple[int, int]:
    """Return 0 when every stream that waits for an event has gone on, else 1."""
    event, code = _event(machine, None, handle)
    if event is None:
        return 0, code
    machine.schedule.pump()
    return int(not all(each.done for each in event.waits)), 0


def _time(machine: Machine, event: Event) -> tuple[float, int]:
    if event.record is None:
        return 0.0, machine.fail(WRONG_PARAM, f"{event} was not recorded")
    if not event.flags & _TIME_LINE:
        return 0.0, machine.fail(NO_TIME, f"{event} was made without the flag TIME_LINE, 0x8")
    if not event.record.latch.done:
        return 0.0, machine.fail(NO_TIME, f"{event} did not happen yet")
    return event.record.time_s, 0


@acl_call("rt.event_elapsed_time", "kk", "vr", context=True)
def event_elapsed_time(
    machine: Machine, _context: Context, start: int, end: int
) -> tuple[float, int]:
    """Return the milliseconds between two events."""
    times = []
    streams = []
    for handle in (start, end):
        event, code = _event(machine, None, handle)
        if event is None:
            return 0.0, code
        time_s, code = _time(machine, event)
        if code:
            return 0.0, code
        times.append(time_s)
        assert event.record is not None
        streams.append(event.record.stream)
    if streams[0] is not streams[1]:
        machine.lenient("the two events were recorded on different streams")
    if times[1] < times[0]:
        return 0.0, machine.fail(TIME_REVERSED, "the end is before the start")
    return (times[1] - times[0]) * 1000, 0


@acl_call("rt.event_get_timestamp", "k", "vr", context=True)
def event_get_timestamp(machine: Machine, _context: Context, handle: int) -> tuple[int, int]:
    """Return when an event happened, in microseconds since the device started."""
    event, code = _event(machine, None, handle)
    if event is None:
        return 0, code
    time_s, code = _time(machine, event)
    return int(time_s * 1e6), code


@acl_call("rt.set_op_wait_timeout", "I")
def set_op_wait_timeout(machine: Machine, _seconds: int) -> int:
    """Limit how long streams wait for events; the emulator's wait for ever."""
    if not machine.initialised:
        return machine.fail(100001, "acl.init was not called")
    return 0


@acl_call("rt.get_event_id", "k", "vr", context=True)
def get_event_id(machine: Machine, _context: Context, handle: int) -> tuple[int, int]:
    """Return a number for an event."""
    event, code = _event(machine, None, handle)
    return (0, code) if event is None else (handle & 0xFFFF, 0)


@acl_call("rt.get_event_avail_num", "*", "vr", context=True)
def get_event_avail_num(machine: Machine, context: Context) -> tuple[int, int]:
    """Return how many events can still be made."""
    return machine.profile.limits.events - context.device.events, 0
