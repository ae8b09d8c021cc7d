"""Callbacks: functions of the program that a stream runs in a thread of the program."""

from __future__ import annotations

import signal
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gepipe.emulator.api import acl_call
from gepipe.emulator.reporter import Due, Reporter, Worker
from gepipe.emulator.stream import Stream
from gepipe.emulator.task import Latch, Task

if TYPE_CHECKING:
    from gepipe.emulator.device import Context
    from gepipe.emulator.machine import Machine

INVALID_PARAM, SUBSCRIBED, NOT_SUBSCRIBED, NO_SUBSCRIBER = 100000, 107011, 107012, 107015
TIMEOUT, WRONG_STREAM = 507012, 107003


@acl_call("rt.subscribe_report", "kk", context=True)
def subscribe_report(machine: Machine, context: Context, tid: int, stream_handle: int) -> int:
    """Let a thread run the callbacks of a stream."""
    stream, code = machine.stream(context, stream_handle)
    if stream is None:
        return code
    if stream.subscriber is not None:
        return machine.fail(SUBSCRIBED, f"{stream} is subscribed already")
    if tid == 0:
        return machine.fail(INVALID_PARAM, "thread id is 0")
    reporter = machine.reporters.setdefault(tid, Reporter(tid))
    if any(each.context.device is not context.device for each in reporter.streams):
        text = f"thread {tid} serves streams of another device"
        return machine.fail(WRONG_STREAM, text)
    reporter.streams.append(stream)
    stream.subscriber = reporter
    return 0


@acl_call("rt.unsubscribe_report", "kk", context=True)
def unsubscribe_report(machine: Machine, context: Context, tid: int, stream_handle: int) -> int:
    """End what `subscribe_report` began."""
    stream, code = machine.stream(context, stream_handle)
    if stream is None:
        return code
    reporter = stream.subscriber
    if reporter is None or reporter.tid != tid:
        return machine.fail(NOT_SUBSCRIBED, f"thread {tid} is not subscribed to {stream}")
    reporter.streams.remove(stream)
    stream.subscriber = None
    if not reporter.streams:
        machine.reporters.pop(tid, None)
    return 0


@acl_call("rt.launch_callback", "FLik", context=True)
def launch_callback(  # noqa: PLR0913, PLR0917 - acl has as many
    machine: Machine,
    context: Context,
    call: Callable[..., Any],
    argument: list[Any],
    block: int,
    stream_handle: int,
) -> int:
    """Let a stream run a function in the thread that is subscribed to it."""
    stream, code = machine.stream(context, stream_handle)
    if stream is None:
        return code
    if block not in (0, 1):
        return machine.fail(INVALID_PARAM, f"block {block} is neither 0 nor 1")
    reporter: Reporter | None = stream.subscriber
    if reporter is None:
        return machine.fail(NO_SUBSCRIBER, f"no thread is subscribed to {stream}")
    report = Due(call, argument, Latch(), {})

    def hand_over(_: Stream) -> int:
        reporter.due.put(report)
        return 0

    def go_on(_: Stream) -> int:
        return 0

    stream.submit(Task(hand_over, "acl.rt.launch_callback"), mark=report.clock)
    if block:
        stream.submit(Task(go_on, "acl.rt.launch_callback", after=report.done, always=True))
    return 0


@acl_call("rt.process_report", "i")
def process_report(machine: Machine, timeout_ms: int) -> int:
    """Run the next callback that is due in this thread, or wait for one."""
    if timeout_ms < -1 or timeout_ms == 0:
        return machine.fail(INVALID_PARAM, f"timeout {timeout_ms} ms is neither -1 nor above 0")
    reporter = machine.reporters.get(threading.get_ident())
    if reporter is None:
        return machine.fail(NOT_SUBSCRIBED, "this thread is not subscribed to a stream")
    timeout_s = None if timeout_ms == -1 else timeout_ms / 1000
    report = machine.schedule.take(reporter.due, timeout_s)
    if report is None:
        return machine.fail(TIMEOUT, f"no callback within {timeout_ms} ms")
    machine.observe(report.clock)
    try:
        report.call(report.argument)
    except BaseException:  # noqa: BLE001 - as pyACL: logged only, also what would end the thread
        machine.report.say(f"a callback raised, which pyACL ignores:\n{traceback.format_exc()}")
    report.done.open()
    machine.schedule.notify()
    return 0


@acl_call("util.start_thread", "FO", "vr")
def start_thread(machine: Machine, call: Callable[..., Any], argument: Any) -> tuple[int, int]:
    """Begin a thread that calls a function with one argument, or without when it is None."""

    def work() -> None:
        try:
            call() if argument is None else call(argument)
        except BaseException as error:  # noqa: BLE001 - stop_thread raises it
            worker.error = error

    worker = Worker(threading.Thread(target=work, daemon=True))
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # as pyACL does
    worker.thread.start()
    tid = worker.thread.ident or 0
    machine.workers[tid] = worker
    return tid, 0


@acl_call("util.stop_thread", "k")
def stop_thread(machine: Machine, tid: int) -> int:
    """Wait for a thread to end, and raise what it raised."""
    worker = machine.workers.pop(tid, None)
    if worker is None:
        return machine.fail(INVALID_PARAM, f"thread {tid} was not begun by acl.util.start_thread")
    worker.thread.join()
    if worker.error is not None:
        raise RuntimeError(f"the thread raised {worker.error!r}") from worker.error
    return 0
