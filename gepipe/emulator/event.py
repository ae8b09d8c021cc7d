"""Events: marks in streams that other streams and the host wait for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gepipe.emulator.api import acl_call
from gepipe.emulator.handles import Site
from gepipe.emulator.order import Clock, merge
from gepipe.emulator.stream import Stream
from gepipe.emulator.task import Latch, Task

if TYPE_CHECKING:
    from gepipe.emulator.device import Context
    from gepipe.emulator.machine import Machine

INVALID_PARAM, WRONG_PARAM, WRONG_CONTEXT = 100000, 107000, 107003
NO_EVENT, SYNC_TIMEOUT = 207007, 507047
_SYNC, TIME_LINE = 0x1, 0x8
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


def event_of(machine: Machine, context: Context | None, handle: int) -> tuple[Event | None, int]:
    """Return a live event, of this context if one is given, or a code."""
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
    with machine.lock:
        context.device.events += 1
    return machine.handles.add(Event(context, flags, renewable)), 0


@acl_call("rt.create_event", "*", "vr", context=True)
def create_event(machine: Machine, context: Context) -> tuple[int, int]:
    """Create an event for waiting and timing."""
    return _create(machine, context, _SYNC | TIME_LINE, renewable=False)


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
    event, code = event_of(machine, None, handle)
    if event is None:
        return code
    if machine.thread.context is not event.context:
        machine.lenient(f"{event} is destroyed in another context than {event.context}")
    with machine.lock:
        event.context.device.events -= 1
    machine.handles.remove(handle, f"{event}, destroyed at {Site()}")
    return 0


@acl_call("rt.record_event", "kk", context=True)
def record_event(machine: Machine, context: Context, handle: int, stream_handle: int) -> int:
    """Mark the point that a stream was filled to."""
    event, code = event_of(machine, context, handle)
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
    event, code = event_of(machine, context, handle)
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
    event, code = event_of(machine, context, handle)
    if event is None:
        return code
    stream, code = machine.stream(context, stream_handle)
    if stream is None:
        return code
    if not event.flags & _SYNC or event.renewable:
        return machine.fail(WRONG_PARAM, f"{event} cannot be reset: see its flags")
    event.record = None
    return 0


def _wait(machine: Machine, context: Context, handle: int, timeout_s: float | None) -> int:
    event, code = event_of(machine, context, handle)
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
def synchronize_event(machine: Machine, context: Context, handle: int) -> int:
    """Wait for an event. Failures of tasks do not show here, but at their stream."""
    return _wait(machine, context, handle, None)


@acl_call("rt.synchronize_event_with_timeout", "ki", context=True)
def synchronize_event_with_timeout(
    machine: Machine, context: Context, handle: int, timeout_ms: int
) -> int:
    """Wait for an event, but not for ever."""
    if timeout_ms < -1 or timeout_ms == 0:
        return machine.fail(INVALID_PARAM, f"timeout {timeout_ms} ms is neither -1 nor above 0")
    return _wait(machine, context, handle, None if timeout_ms == -1 else timeout_ms / 1000)
