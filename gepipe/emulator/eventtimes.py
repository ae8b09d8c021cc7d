"""Asking about events: whether they happened, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gepipe.emulator.api import acl_call
from gepipe.emulator.event import TIME_LINE, Event, event_of

if TYPE_CHECKING:
    from gepipe.emulator.device import Context
    from gepipe.emulator.machine import Machine

WRONG_PARAM, NO_TIME, TIME_REVERSED = 107000, 107006, 107007


def _happened(machine: Machine, event: Event) -> bool:
    machine.schedule.pump()
    if event.record is None:
        return True
    if event.record.latch.done:
        machine.observe(event.record.clock)
    return event.record.latch.done


@acl_call("rt.query_event", "k", "vr", context=True)
def query_event(machine: Machine, context: Context, handle: int) -> tuple[int, int]:
    """Return 0 when an event happened, else 1."""
    event, code = event_of(machine, context, handle)
    if event is None:
        return 0, code
    if event.renewable:
        text = f"{event} is of acl.rt.create_event_ex_with_flag; ask acl.rt.query_event_status"
        return 0, machine.fail(WRONG_PARAM, text)
    return int(not _happened(machine, event)), 0


@acl_call("rt.query_event_status", "k", "vr", context=True)
def query_event_status(machine: Machine, context: Context, handle: int) -> tuple[int, int]:
    """Return 1 when an event happened, else 0."""
    event, code = event_of(machine, context, handle)
    if event is None:
        return 0, code
    if event.record is None:
        return int(event.renewable), 0
    return int(_happened(machine, event)), 0


@acl_call("rt.query_event_wait_status", "k", "vr", context=True)
def query_event_wait_status(machine: Machine, context: Context, handle: int) -> tuple[int, int]:
    """Return 0 when every stream that waits for an event has gone on, else 1."""
    event, code = event_of(machine, context, handle)
    if event is None:
        return 0, code
    machine.schedule.pump()
    return int(not all(each.done for each in event.waits)), 0


def _time(machine: Machine, event: Event) -> tuple[float, int]:
    if event.record is None:
        return 0.0, machine.fail(WRONG_PARAM, f"{event} was not recorded")
    if not event.flags & TIME_LINE:
        return 0.0, machine.fail(NO_TIME, f"{event} was made without the flag TIME_LINE, 0x8")
    if not event.record.latch.done:
        return 0.0, machine.fail(NO_TIME, f"{event} did not happen yet")
    return event.record.time_s, 0


@acl_call("rt.event_elapsed_time", "kk", "vr", context=True)
def event_elapsed_time(
    machine: Machine, context: Context, start: int, end: int
) -> tuple[float, int]:
    """Return the milliseconds between two events."""
    times = []
    streams = []
    for handle in (start, end):
        event, code = event_of(machine, context, handle)
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
def event_get_timestamp(machine: Machine, context: Context, handle: int) -> tuple[int, int]:
    """Return when an event happened, in microseconds since the device started."""
    event, code = event_of(machine, context, handle)
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
def get_event_id(machine: Machine, context: Context, handle: int) -> tuple[int, int]:
    """Return a number for an event."""
    event, code = event_of(machine, context, handle)
    return (0, code) if event is None else (handle & 0xFFFF, 0)


@acl_call("rt.get_event_avail_num", "*", "vr", context=True)
def get_event_avail_num(machine: Machine, context: Context) -> tuple[int, int]:
    """Return how many events can still be made."""
    return machine.profile.limits.events - context.device.events, 0
