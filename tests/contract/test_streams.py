"""Streams, events and callbacks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gepipe.emulator.errors import EmulatorError
from tests.contract.card import H2D, Card


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


def test_a_stream_is_destroyed_in_its_own_context(emulated: Card) -> None:
    emulated.ok(emulated.acl.rt.create_context(0))
    assert emulated.acl.rt.destroy_stream(emulated.stream) == 107003


def test_destroying_a_stream_waits_for_its_work(make: Callable[..., Card]) -> None:
    for mode in ("strict", "compatible"):
        card = make(mode, latency_ms=30).open()
        model = card.loaded("timing")
        card.ok(model.execute_async(card.stream))
        if mode == "strict":
            with pytest.raises(EmulatorError, match="before it was synchronised"):
                card.acl.rt.destroy_stream(card.stream)
        else:
            assert card.acl.rt.destroy_stream(card.stream) == 0
            assert model.result((1,)) >= 0  # and it is ordered


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


def test_the_gil_is_free_while_a_stream_is_waited_for(make: Callable[..., Card]) -> None:
    card = make(latency_ms=400).open()
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


@contextmanager
def longest_stall() -> Iterator[Callable[[], float]]:
    """Watch, from another thread, how long Python stands still; yields what tells it."""
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
    yield lambda: longest
    threading.Event().wait(0.02)
    stop.set()
    thread.join()


def test_the_gil_is_held_during_a_synchronous_execution(make: Callable[..., Card]) -> None:
    card = make(latency_ms=100).open()
    model = card.loaded("timing")
    with longest_stall() as stall:
        card.ok(model.execute())
    assert stall() > 0.08


def test_the_gil_is_held_during_a_copy(make: Callable[..., Card]) -> None:
    card = make(copy={"gb_per_s": 0.001, "latency_us": 0}).open()
    size = 100_000  # 100 ms
    ptr, host = card.device(size), card.pinned(size)
    with longest_stall() as stall:
        card.ok(card.acl.rt.memcpy(ptr, size, host, size, H2D))
    assert stall() > 0.08


def test_a_fault_of_a_call_that_was_refused_strikes_no_other(make: Callable[..., Card]) -> None:
    card = make(faults=[{"call": "mdl.execute_async", "hang": True}]).open()
    model = card.loaded()
    assert card.acl.mdl.execute_async(99, model.ins, model.outs, card.stream) == 145003
    event = card.ok(card.acl.rt.create_event())
    card.ok(card.acl.rt.record_event(event, card.stream))
    card.ok(model.execute_async(card.stream))
    assert card.acl.rt.synchronize_stream_with_timeout(card.stream, 30_000) == 0


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


def test_a_wait_that_would_never_end_is_an_emulator_error_under_a_seed(
    make: Callable[..., Card],
) -> None:
    card = make(seed=1, faults=[{"call": "mdl.execute_async", "hang": True}]).open()
    card.ok(card.loaded().execute_async(card.stream))
    assert card.acl.rt.synchronize_stream_with_timeout(card.stream, 60000) == 507046
    with pytest.raises(EmulatorError, match="for ever"):
        card.acl.rt.synchronize_stream(card.stream)
