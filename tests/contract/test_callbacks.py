"""Callbacks: functions that a stream runs in a thread of the program."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable

import pytest

from tests.contract.card import Card


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
    for fail in (lambda _: 1 / 0, lambda _: sys.exit(1)):
        card.ok(card.acl.rt.launch_callback(fail, [], 1, card.stream))
        card.ok(card.acl.rt.synchronize_stream_with_timeout(card.stream, 30_000))
    came: list[int] = []
    card.ok(card.acl.rt.launch_callback(came.append, [7], 1, card.stream))
    card.ok(card.acl.rt.synchronize_stream_with_timeout(card.stream, 30_000))
    assert came == [[7]]  # the thread goes on
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


def test_one_thread_serves_many_streams_of_one_device(make: Callable[..., Card]) -> None:
    card = make(devices=2).open()
    listener, rt, called = Listener(card), card.acl.rt, []
    streams = [card.stream, card.ok(rt.create_stream())]
    for number, stream in enumerate(streams):
        card.ok(rt.subscribe_report(listener.tid, stream))
        card.ok(rt.launch_callback(called.append, [number], 1, stream))
    for stream in streams:
        card.ok(rt.synchronize_stream(stream))
    assert sorted(called) == [[0], [1]]
    card.ok(rt.create_context(1))
    other = card.ok(rt.create_stream())
    assert rt.subscribe_report(listener.tid, other) == 107003
    assert rt.unsubscribe_report(listener.tid, other) == 107012
    listener.stop()


def test_a_stream_goes_on_beside_a_callback_that_does_not_block(card: Card) -> None:
    rt = card.acl.rt
    done = threading.Event()

    def work(_: list[int]) -> None:
        while not done.is_set():
            rt.process_report(10)

    tid = card.ok(card.acl.util.start_thread(work, []))
    card.ok(rt.subscribe_report(tid, card.stream))
    card.ok(rt.launch_callback(lambda _: done.wait(), [], 0, card.stream))
    assert rt.synchronize_stream_with_timeout(card.stream, 30_000) == 0
    assert not done.is_set()
    done.set()
    assert card.acl.util.stop_thread(tid) == 0
    card.ok(rt.unsubscribe_report(tid, card.stream))
    assert rt.launch_callback(len, [], 2, card.stream) == 100000


def test_process_report_without_a_callback_in_time_is_507012(card: Card) -> None:
    tid = threading.get_ident()
    card.ok(card.acl.rt.subscribe_report(tid, card.stream))
    assert card.acl.rt.process_report(5) == 507012
    card.ok(card.acl.rt.unsubscribe_report(tid, card.stream))


def test_start_thread_takes_the_handler_of_ctrl_c_away(card: Card) -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    tid = card.ok(card.acl.util.start_thread(len, []))
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert card.acl.util.stop_thread(tid) == 0
    assert card.acl.util.stop_thread(tid) == 100000


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
