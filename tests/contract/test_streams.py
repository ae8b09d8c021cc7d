"""Streams, events and callbacks."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

import pytest

from gepipe.emulator.errors import EmulatorError
from tests.contract.card import D2H, H2D, Card


def test_the_default_stream_is_zero(card: Card) -> None:
    assert card.acl.rt.synchronize_stream(0) == 0


def test_a_stream_of_another_context_is_107003(card: Card) -> None:
    other = card.ok(card.acl.rt.create_context(0))
    ptr, host = card.device(64), card.pinned(64)
    assert card.acl.rt.synchronize_stream(card.stream) == 107003
    assert card.acl.rt.memcpy_async(ptr, 64, host, 64, H2D, card.stream) == 107003
    assert card.acl.rt.free(ptr) == 0
    assert card.acl.rt.free_host(host) == 0
    assert card.acl.rt.destroy_context(other) == 0
    assert card.acl.rt.set_context(card.context) == 0


def test_an_event_of_another_context_is_107003(emulated: Card) -> None:
    event = emulated.ok(emulated.acl.rt.create_event())
    emulated.ok(emulated.acl.rt.create_context(0))
    stream = emulated.ok(emulated.acl.rt.create_stream())
    assert emulated.acl.rt.record_event(event, stream) == 107003


def test_streams_with_priorities_and_flags(card: Card) -> None:
    stream = card.ok(card.acl.rt.create_stream_with_config(0, 3))
    assert card.acl.rt.synchronize_stream(stream) == 0
    assert card.acl.rt.destroy_stream(stream) == 0
    assert card.acl.rt.create_stream_with_config(8, 3)[1] != 0


def test_destroying_a_stream_twice_is_an_emulator_error(emulated: Card) -> None:
    stream = emulated.ok(emulated.acl.rt.create_stream())
    emulated.ok(emulated.acl.rt.destroy_stream(stream))
    with pytest.raises(EmulatorError, match="destroyed at"):
        emulated.acl.rt.destroy_stream(stream)


def test_a_timeout_of_zero_is_100000(card: Card) -> None:
    assert card.acl.rt.synchronize_stream_with_timeout(card.stream, 0) == 100000
    assert card.acl.rt.synchronize_stream_with_timeout(card.stream, -1) == 0


def test_waiting_too_long_for_a_stream_is_507046(make: Callable[..., Card]) -> None:
    card = make(faults=[{"call": "mdl.execute_async", "hang": True}]).open()
    model = card.loaded()
    event = card.ok(card.acl.rt.create_event())
    assert model.execute_async(card.stream) == 0
    card.ok(card.acl.rt.record_event(event, card.stream))
    began = time.monotonic()
    assert card.acl.rt.synchronize_stream_with_timeout(card.stream, 30) == 507046
    assert time.monotonic() - began >= 0.03
    assert card.acl.rt.synchronize_event_with_timeout(event, 10) == 507047
    assert card.acl.rt.stream_query(card.stream) == (1, 0)
    assert card.acl.rt.destroy_stream_force(card.stream) == 0


def test_streams_and_events_are_limited(make: Callable[..., Card]) -> None:
    card = make(limits={"streams": 3, "events": 2}).open()
    card.ok(card.acl.rt.create_stream())
    card.ok(card.acl.rt.synchronize_stream(0))  # the default stream counts
    assert card.acl.rt.create_stream() == (0, 207008)
    for _ in range(2):
        card.ok(card.acl.rt.create_event())
    assert card.acl.rt.create_event() == (0, 207007)
    assert card.acl.rt.get_event_avail_num() == (0, 0)


def test_the_gil_is_free_while_a_stream_is_waited_for(make: Callable[..., Card]) -> None:
    card = make(latency_ms=50).open()
    model = card.loaded("timing")
    turns = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal turns
        while not stop.wait(0.001):
            turns += 1

    thread = threading.Thread(target=count)
    thread.start()
    card.ok(model.execute_async(card.stream))
    card.ok(card.acl.rt.synchronize_stream(card.stream))
    stop.set()
    thread.join()
    assert turns > 5


def test_the_gil_is_held_during_a_synchronous_execution(make: Callable[..., Card]) -> None:
    card = make(latency_ms=100).open()
    model = card.loaded("timing")
    longest = 0.0
    ready, stop = threading.Event(), threading.Event()

    def watch() -> None:
        nonlocal longest
        last = time.monotonic()
        while not stop.wait(0.001):
            ready.set()
            now = time.monotonic()
            longest, last = max(longest, now - last), now

    thread = threading.Thread(target=watch)
    thread.start()
    ready.wait()
    card.ok(model.execute())
    threading.Event().wait(0.02)
    stop.set()
    thread.join()
    assert longest > 0.08


def test_an_event_orders_two_streams(make: Callable[..., Card]) -> None:
    for seed in range(20):
        card = make(seed=seed).open()
        rt = card.acl.rt
        ptr, there, back = card.device(64), card.pinned(64), card.pinned(64)
        card.fill(there, b"x" * 64)
        other = card.ok(rt.create_stream())
        event = card.ok(rt.create_event())
        card.ok(rt.memcpy_async(ptr, 64, there, 64, H2D, card.stream))
        card.ok(rt.record_event(event, card.stream))
        card.ok(rt.stream_wait_event(other, event))
        card.ok(rt.memcpy_async(back, 64, ptr, 64, D2H, other))
        card.ok(rt.synchronize_stream(other))
        assert ctypes.string_at(back, 64) == b"x" * 64
        card.machine.close()


def test_without_an_event_two_streams_race(emulated: Card) -> None:
    rt = emulated.acl.rt
    ptr, there, back = emulated.device(64), emulated.pinned(64), emulated.pinned(64)
    other = emulated.ok(rt.create_stream())
    emulated.ok(rt.memcpy_async(ptr, 64, there, 64, H2D, emulated.stream))
    with pytest.raises(EmulatorError, match="or let an event order them"):
        rt.memcpy_async(back, 64, ptr, 64, D2H, other)


def test_the_two_queries_of_an_event_have_opposite_answers(card: Card) -> None:
    rt = card.acl.rt
    event = card.ok(rt.create_event())
    card.ok(rt.record_event(event, card.stream))
    card.ok(rt.synchronize_event(event))
    assert rt.query_event(event) == (0, 0)
    assert rt.query_event_status(event) == (1, 0)
    assert rt.query_event_wait_status(event) == (0, 0)
    assert rt.destroy_event(event) == 0


def test_elapsed_time_is_in_milliseconds(make: Callable[..., Card]) -> None:
    card = make(latency_ms=20).open()
    rt, model = card.acl.rt, card.loaded("timing")
    start, end = card.ok(rt.create_event()), card.ok(rt.create_event())
    card.ok(rt.record_event(start, card.stream))
    card.ok(model.execute_async(card.stream))
    card.ok(rt.record_event(end, card.stream))
    assert rt.event_elapsed_time(start, end) == (0.0, 107006)
    card.ok(rt.synchronize_stream(card.stream))
    elapsed = card.ok(rt.event_elapsed_time(start, end))
    assert 20 <= elapsed < 30
    assert rt.event_elapsed_time(end, start)[1] == 107007
    assert card.ok(rt.event_get_timestamp(end)) > 0


def test_an_event_without_the_time_flag_has_no_time(card: Card) -> None:
    event = card.ok(card.acl.rt.create_event_with_flag(1))
    card.ok(card.acl.rt.record_event(event, card.stream))
    card.ok(card.acl.rt.synchronize_event(event))
    assert card.acl.rt.event_get_timestamp(event) == (0, 107006)
    assert card.acl.rt.reset_event(event, card.stream) == 0
    assert card.acl.rt.destroy_event(event) == 0


def test_only_events_for_waiting_can_be_reset(card: Card) -> None:
    event = card.ok(card.acl.rt.create_event_with_flag(8))
    assert card.acl.rt.reset_event(event, card.stream) == 107000
    assert card.acl.rt.destroy_event(event) == 0


def test_streams_wait_only_for_events_with_the_flag_for_it(emulated: Card) -> None:
    event = emulated.ok(emulated.acl.rt.create_event_with_flag(8))
    emulated.ok(emulated.acl.rt.record_event(event, emulated.stream))
    with pytest.raises(EmulatorError, match="without the flag SYNC"):
        emulated.acl.rt.stream_wait_event(0, event)


def test_an_event_may_be_destroyed_before_it_happens(make: Callable[..., Card]) -> None:
    card = make(latency_ms=20).open()
    model, event = card.loaded("timing"), card.ok(card.acl.rt.create_event())
    card.ok(model.execute_async(card.stream))
    card.ok(card.acl.rt.record_event(event, card.stream))
    assert card.acl.rt.destroy_event(event) == 0
    assert card.acl.rt.synchronize_stream(card.stream) == 0


def test_failures_surface_when_the_stream_is_synchronised_and_not_at_events(
    make: Callable[..., Card],
) -> None:
    card = make(faults=[{"call": "mdl.execute_async", "code": 507011}]).open()
    model, event = card.loaded(), card.ok(card.acl.rt.create_event())
    assert model.execute_async(card.stream) == 0
    card.ok(card.acl.rt.record_event(event, card.stream))
    assert card.acl.rt.synchronize_event(event) == 0
    assert card.acl.rt.synchronize_stream(card.stream) == 507011
    assert card.acl.rt.synchronize_stream(card.stream) == 0


def test_a_lost_device_fails_every_call_until_the_process_ends(
    make: Callable[..., Card],
) -> None:
    card = make(faults=[{"call": "mdl.execute_async", "at": 2, "lost": True}]).open()
    model, event = card.loaded(), card.ok(card.acl.rt.create_event())
    for _ in range(2):
        card.ok(model.execute_async(card.stream))
    card.ok(card.acl.rt.record_event(event, card.stream))
    assert card.acl.rt.synchronize_stream(card.stream) == 507010
    assert card.acl.rt.synchronize_event(event) == 507010
    assert card.acl.rt.malloc(64, 0) == (0, 507010)
    assert card.acl.rt.set_device(0) == 507010


# --- callbacks --------------------------------------------------------------------------------


class Listener:
    """A thread that runs callbacks, as samples have it."""

    def __init__(self, card: Card) -> None:
        self.card, self.running, self.codes = card, True, []
        self.tid = card.ok(card.acl.util.start_thread(self.work, [card.context, 50]))

    def work(self, args: list[int]) -> None:
        context, timeout_ms = args
        self.card.ok(self.card.acl.rt.set_context(context))
        while self.running:
            self.codes.append(self.card.acl.rt.process_report(timeout_ms))
            if self.codes[-1] == 107012:
                threading.Event().wait(0.001)

    def stop(self) -> None:
        self.running = False
        assert self.card.acl.util.stop_thread(self.tid) == 0


@pytest.fixture
def listener(card: Card) -> Listener:
    return Listener(card)


def test_a_callback_runs_in_the_subscribed_thread(card: Card, listener: Listener) -> None:
    called: list[tuple[list[int], int]] = []
    rt = card.acl.rt
    assert rt.launch_callback(called.append, [1], 0, card.stream) == 107015
    card.ok(rt.subscribe_report(listener.tid, card.stream))
    assert rt.subscribe_report(listener.tid, card.stream) in (100033, 107011)
    seen: list[int] = []
    card.ok(
        rt.launch_callback(
            lambda given: (called.append((given, threading.get_ident())), seen.append(1)),
            [7],
            1,
            card.stream,
        )
    )
    card.ok(rt.synchronize_stream(card.stream))
    assert called == [([7], listener.tid)]
    card.ok(rt.unsubscribe_report(listener.tid, card.stream))
    listener.stop()
    assert set(listener.codes) <= {0, 107012, 507012}


def test_exceptions_in_a_callback_are_swallowed(card: Card, listener: Listener) -> None:
    card.ok(card.acl.rt.subscribe_report(listener.tid, card.stream))
    card.ok(card.acl.rt.launch_callback(lambda _: 1 / 0, [], 1, card.stream))
    card.ok(card.acl.rt.synchronize_stream(card.stream))
    card.ok(card.acl.rt.unsubscribe_report(listener.tid, card.stream))
    listener.stop()


def test_a_callback_may_copy_and_allocate(card: Card, listener: Listener) -> None:
    ptr = card.device(64)
    card.write(ptr, b"q" * 64)
    got: list[bytes] = []
    card.ok(card.acl.rt.subscribe_report(listener.tid, card.stream))
    card.ok(
        card.acl.rt.launch_callback(lambda _: got.append(card.read(ptr, 2)), [], 1, card.stream)
    )
    card.ok(card.acl.rt.synchronize_stream(card.stream))
    assert got == [b"qq"]
    card.ok(card.acl.rt.unsubscribe_report(listener.tid, card.stream))
    listener.stop()
    assert card.acl.rt.free(ptr) == 0


def test_the_default_stream_takes_callbacks(card: Card, listener: Listener) -> None:
    called: list[list[int]] = []
    card.ok(card.acl.rt.subscribe_report(listener.tid, 0))
    card.ok(card.acl.rt.launch_callback(called.append, [3], 1, 0))
    card.ok(card.acl.rt.synchronize_stream(0))
    assert called == [[3]]
    card.ok(card.acl.rt.unsubscribe_report(listener.tid, 0))
    listener.stop()


def test_a_python_thread_can_be_subscribed(card: Card) -> None:
    called: list[list[int]] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            if card.acl.rt.process_report(20) == 107012:
                threading.Event().wait(0.001)

    thread = threading.Thread(target=work)
    thread.start()
    card.ok(card.acl.rt.subscribe_report(thread.ident, card.stream))
    card.ok(card.acl.rt.launch_callback(called.append, [5], 1, card.stream))
    card.ok(card.acl.rt.synchronize_stream(card.stream))
    card.ok(card.acl.rt.unsubscribe_report(thread.ident, card.stream))
    stop.set()
    thread.join()
    assert called == [[5]]


def test_process_report_in_an_unsubscribed_thread_is_107012(card: Card) -> None:
    assert card.acl.rt.process_report(10) == 107012
    assert card.acl.rt.process_report(0) == 100000


def test_stop_thread_raises_what_the_thread_raised(card: Card) -> None:
    tid = card.ok(card.acl.util.start_thread(lambda _: 1 / 0, []))
    with pytest.raises(RuntimeError):
        card.acl.util.stop_thread(tid)


def test_start_thread_with_none_calls_without_arguments(card: Card) -> None:
    called: list[int] = []
    tid = card.ok(card.acl.util.start_thread(lambda: called.append(1), None))
    assert card.acl.util.stop_thread(tid) == 0
    assert called == [1]


def test_callbacks_work_under_a_seeded_schedule(make: Callable[..., Card]) -> None:
    card = make(seed=5).open()
    listener = Listener(card)
    called: list[list[int]] = []
    card.ok(card.acl.rt.subscribe_report(listener.tid, card.stream))
    for number in range(4):
        card.ok(card.acl.rt.launch_callback(called.append, [number], 1, card.stream))
    card.ok(card.acl.rt.synchronize_stream(card.stream))
    assert called == [[number] for number in range(4)]
    card.ok(card.acl.rt.unsubscribe_report(listener.tid, card.stream))
    listener.stop()


def test_a_wait_that_would_never_end_is_an_emulator_error_under_a_seed(
    make: Callable[..., Card],
) -> None:
    card = make(seed=1, faults=[{"call": "mdl.execute_async", "hang": True}]).open()
    card.ok(card.loaded().execute_async(card.stream))
    assert card.acl.rt.synchronize_stream_with_timeout(card.stream, 60000) == 507046
    with pytest.raises(EmulatorError, match="for ever"):
        card.acl.rt.synchronize_stream(card.stream)
