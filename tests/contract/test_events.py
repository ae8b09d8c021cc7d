"""Events: marks in streams that other streams and the host wait for."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import pytest

from gepipe.emulator.errors import EmulatorError
from tests.contract.card import D2H, H2D, Card


def test_an_event_of_another_context_is_107003(emulated: Card) -> None:
    event = emulated.ok(emulated.acl.rt.create_event())
    emulated.ok(emulated.acl.rt.create_context(0))
    stream = emulated.ok(emulated.acl.rt.create_stream())
    assert emulated.acl.rt.record_event(event, stream) == 107003


def test_an_event_is_used_in_its_own_context_only(emulated: Card) -> None:
    rt = emulated.acl.rt
    event = emulated.ok(rt.create_event())
    emulated.ok(rt.record_event(event, emulated.stream))
    emulated.ok(rt.create_context(0))
    assert rt.synchronize_event(event) == 107003
    assert rt.synchronize_event_with_timeout(event, 10) == 107003
    assert rt.query_event_status(event) == (0, 107003)
    assert rt.event_elapsed_time(event, event) == (0.0, 107003)
    with pytest.raises(EmulatorError, match="in another context"):
        rt.destroy_event(event)


def test_streams_and_events_are_limited(make: Callable[..., Card]) -> None:
    card = make(limits={"streams": 3, "events": 2}).open()
    card.ok(card.acl.rt.create_stream())
    card.ok(card.acl.rt.synchronize_stream(0))  # the default stream counts
    assert card.acl.rt.create_stream() == (0, 207008)
    for _ in range(2):
        card.ok(card.acl.rt.create_event())
    assert card.acl.rt.create_event() == (0, 207007)
    assert card.acl.rt.get_event_avail_num() == (0, 0)


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
    began_s = time.monotonic()
    with card.held():
        card.ok(rt.record_event(start, card.stream))
        card.ok(model.execute_async(card.stream))
        card.ok(rt.record_event(end, card.stream))
        assert rt.event_elapsed_time(start, end) == (0.0, 107006)
    card.ok(rt.synchronize_stream(card.stream))
    elapsed = card.ok(rt.event_elapsed_time(start, end))
    assert 20 <= elapsed <= (time.monotonic() - began_s) * 1000
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


def test_an_ex_event_is_recorded_again_and_neither_reset_nor_queried(card: Card) -> None:
    rt = card.acl.rt
    event = card.ok(rt.create_event_ex_with_flag(9))
    for _ in range(2):
        assert rt.record_event(event, card.stream) == 0
        assert rt.synchronize_event(event) == 0
    assert rt.query_event(event)[1] == 107000
    assert rt.reset_event(event, card.stream) == 107000
    assert rt.query_event_status(event) == (1, 0)
    assert rt.destroy_event(event) == 0


def test_an_event_that_was_never_recorded(emulated: Card, lenient: Card) -> None:
    for card in (emulated, lenient):
        rt = card.acl.rt
        event = card.ok(rt.create_event())
        assert rt.synchronize_event(event) == 0
        assert rt.query_event(event) == (0, 0)
        assert rt.query_event_status(event) == (0, 0)
        assert rt.event_get_timestamp(event) == (0, 107000)
        assert rt.get_event_id(event)[1] == 0
        if card is emulated:
            with pytest.raises(EmulatorError, match="nothing to wait for"):
                rt.stream_wait_event(card.stream, event)
        else:
            assert rt.stream_wait_event(card.stream, event) == 0


def test_only_flags_that_exist_make_events(card: Card) -> None:
    assert card.acl.rt.create_event_with_flag(0) == (0, 100000)
    assert card.acl.rt.create_event_with_flag(0x100) == (0, 100000)
    assert card.acl.rt.destroy_event(0) == 100000


def test_times_of_different_streams_are_not_compared(emulated: Card, lenient: Card) -> None:
    for card in (emulated, lenient):
        rt = card.acl.rt
        events = [card.ok(rt.create_event()) for _ in range(2)]
        for event, stream in zip(events, (card.stream, 0), strict=True):
            card.ok(rt.record_event(event, stream))
            card.ok(rt.synchronize_event(event))
        if card is emulated:
            with pytest.raises(EmulatorError, match="on different streams"):
                rt.event_elapsed_time(*events)
        else:
            assert rt.event_elapsed_time(*events)[1] == 0


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
