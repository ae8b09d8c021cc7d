"""Memory used in ways that are undefined on hardware, or forgiven by it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from gepipe.emulator.errors import EmulatorError
from tests.contract.card import D2D, D2H, H2D, H2H, Card

DATA = bytes(range(64))


def test_a_copy_beyond_the_end_of_an_allocation_is_an_emulator_error(emulated: Card) -> None:
    ptr, host = emulated.device(64), emulated.pinned(128)
    with pytest.raises(EmulatorError, match="beyond the end of device memory"):
        emulated.acl.rt.memcpy(ptr, 128, host, 128, H2D)


def test_freeing_twice_is_an_emulator_error(emulated: Card) -> None:
    ptr, host = emulated.device(64), emulated.pinned(64)
    emulated.ok(emulated.acl.rt.free(ptr))
    emulated.ok(emulated.acl.rt.free_host(host))
    with pytest.raises(EmulatorError, match=r"freed at .*test_misuse"):
        emulated.acl.rt.free(ptr)
    with pytest.raises(EmulatorError, match=r"freed at .*test_misuse"):
        emulated.acl.rt.free_host(host)


def test_a_use_after_free_is_an_emulator_error(emulated: Card) -> None:
    ptr, host = emulated.device(64), emulated.pinned(64)
    emulated.ok(emulated.acl.rt.free(ptr))
    with pytest.raises(EmulatorError, match="freed at"):
        emulated.acl.rt.memcpy(ptr, 64, host, 64, H2D)
    with pytest.raises(EmulatorError, match="freed at"):
        emulated.acl.rt.memcpy(host, 64, ptr, 64, D2H)


def test_freeing_with_the_other_function_is_an_emulator_error(emulated: Card) -> None:
    ptr, host = emulated.device(64), emulated.pinned(64)
    with pytest.raises(EmulatorError, match="free_host"):
        emulated.acl.rt.free(host)
    with pytest.raises(EmulatorError, match=r"acl\.rt\.free"):
        emulated.acl.rt.free_host(ptr)


def test_freeing_inside_an_allocation_is_an_emulator_error(emulated: Card) -> None:
    ptr = emulated.device(128)
    with pytest.raises(EmulatorError, match="inside device memory"):
        emulated.acl.rt.free(ptr + 64)


def test_a_write_beyond_pinned_memory_is_found_when_it_is_freed(emulated: Card) -> None:
    host = emulated.pinned(64)
    emulated.fill(host, bytes(65))
    with pytest.raises(EmulatorError, match="wrote beyond the end"):
        emulated.acl.rt.free_host(host)


@pytest.mark.parametrize("kind", [H2H, D2H, D2D])
def test_a_kind_that_contradicts_the_addresses_is_an_error_in_strict_mode(
    emulated: Card, kind: int
) -> None:
    ptr, host = emulated.device(64), emulated.pinned(64)
    with pytest.raises(EmulatorError, match="but the addresses mean host to device"):
        emulated.acl.rt.memcpy(ptr, 64, host, 64, kind)


def test_a_wrong_kind_is_noted_and_mended_in_compatible_mode(lenient: Card) -> None:
    ptr, host = lenient.device(64), lenient.pinned(64)
    lenient.fill(host, DATA)
    assert lenient.acl.rt.memcpy(ptr, 64, host, 64, D2H) == 0
    assert lenient.read(ptr, 64) == DATA
    assert any("kind 2" in note for note in lenient.machine.report.notes)


def test_an_asynchronous_copy_of_a_wrong_kind_fails_at_synchronisation(emulated: Card) -> None:
    ptr, host = emulated.device(64), emulated.pinned(64)
    assert emulated.acl.rt.memcpy_async(ptr, 64, host, 64, D2H, emulated.stream) == 0
    assert emulated.acl.rt.synchronize_stream(emulated.stream) == 507013
    assert "memcpy_async at" in emulated.acl.get_recent_err_msg()


def test_an_unaligned_asynchronous_copy_fails_at_synchronisation(emulated: Card) -> None:
    ptr, host = emulated.device(128), emulated.pinned(128)
    assert emulated.acl.rt.memcpy_async(ptr + 8, 64, host, 64, H2D, emulated.stream) == 0
    assert emulated.acl.rt.synchronize_stream(emulated.stream) == 507013
    assert "64-byte boundary" in emulated.acl.get_recent_err_msg()


def test_pageable_memory_in_an_asynchronous_copy_fails_at_synchronisation(emulated: Card) -> None:
    ptr, host = emulated.device(64), np.zeros(64, np.uint8)
    code = emulated.acl.rt.memcpy_async(ptr, 64, host.ctypes.data, 64, H2D, emulated.stream)
    assert code == 0
    assert emulated.acl.rt.synchronize_stream(emulated.stream) == 507013
    assert "malloc_host" in emulated.acl.get_recent_err_msg()


def test_pageable_memory_makes_a_copy_synchronous_in_compatible_mode(lenient: Card) -> None:
    ptr = lenient.device(64)
    host = np.frombuffer(DATA, np.uint8).copy()
    assert lenient.acl.rt.memcpy_async(ptr, 64, host.ctypes.data, 64, H2D, lenient.stream) == 0
    host[:] = 0
    assert lenient.read(ptr, 64) == DATA


def test_an_asynchronous_copy_from_host_to_host_is_not_supported(emulated: Card) -> None:
    first, second = emulated.pinned(64), emulated.pinned(64)
    assert emulated.acl.rt.memcpy_async(first, 64, second, 64, H2H, emulated.stream) == 0
    assert emulated.acl.rt.synchronize_stream(emulated.stream) == 207000


def test_a_copy_stops_at_the_end_of_a_python_object(lenient: Card) -> None:
    ptr, data = lenient.device(64), b"abcd" * 4
    lenient.ok(lenient.acl.rt.memset(ptr, 64, 0, 64))
    address = lenient.acl.util.bytes_to_ptr(data)
    assert lenient.acl.rt.memcpy(ptr, 64, address, 64, H2D) == 0
    assert lenient.read(ptr, 20) == data + bytes(4)


def test_a_copy_beyond_the_end_of_a_python_object_is_an_error_in_strict_mode(
    emulated: Card,
) -> None:
    ptr, data = emulated.device(64), b"abcd" * 4
    address = emulated.acl.util.bytes_to_ptr(data)
    with pytest.raises(EmulatorError, match="a bytes object of 16 bytes has only 16"):
        emulated.acl.rt.memcpy(ptr, 64, address, 64, H2D)


def test_the_address_of_a_dropped_object_is_an_error_in_strict_mode(emulated: Card) -> None:
    ptr = emulated.device(16)
    address = emulated.acl.util.bytes_to_ptr(np.arange(16, dtype=np.uint8).tobytes())
    with pytest.raises(EmulatorError, match="after the object was dropped"):
        emulated.acl.rt.memcpy(ptr, 16, address, 16, H2D)


def test_the_address_of_a_dropped_object_works_in_compatible_mode(lenient: Card) -> None:
    ptr = lenient.device(16)
    address = lenient.acl.util.bytes_to_ptr(np.arange(16, dtype=np.uint8).tobytes())
    assert lenient.acl.rt.memcpy(ptr, 16, address, 16, H2D) == 0
    assert lenient.read(ptr, 16) == bytes(range(16))


def test_freeing_memory_that_a_stream_uses_is_an_emulator_error(emulated: Card) -> None:
    ptr, host = emulated.device(1 << 24), emulated.pinned(1 << 24)
    emulated.ok(emulated.acl.rt.memcpy_async(ptr, 1 << 24, host, 1 << 24, H2D, emulated.stream))
    for free, what in ((emulated.acl.rt.free, ptr), (emulated.acl.rt.free_host, host)):
        with pytest.raises(EmulatorError, match=r"not ordered after acl\.rt\.memcpy_async at"):
            free(what)
    emulated.ok(emulated.acl.rt.synchronize_stream(emulated.stream))
    emulated.ok(emulated.acl.rt.free(ptr))


def test_a_copy_that_races_with_a_stream_is_an_emulator_error(emulated: Card) -> None:
    ptr, host = emulated.device(64), emulated.pinned(64)
    emulated.ok(emulated.acl.rt.memcpy_async(ptr, 64, host, 64, H2D, emulated.stream))
    with pytest.raises(EmulatorError, match="not ordered"):
        emulated.read(ptr, 64)
    emulated.ok(emulated.acl.rt.synchronize_stream(emulated.stream))
    emulated.read(ptr, 64)


def test_memory_of_another_device_needs_that_device(make: Callable[..., Card]) -> None:
    card = make(devices=2).open()
    other = card.ok(card.acl.rt.create_context(1))
    ptr = card.device(64)
    card.ok(card.acl.rt.set_context(card.context))
    model = card.loaded()
    card.ok(card.acl.update_data_buffer(card.acl.mdl.get_dataset_buffer(model.ins, 0), ptr, 64))
    with pytest.raises(EmulatorError, match="memory of device 1"):
        model.execute()
    assert other


def test_rows_are_copied_with_pitches(card: Card) -> None:
    ptr, host = card.device(256), card.pinned(256)
    card.fill(host, bytes(range(256)))
    assert card.acl.rt.memcpy2d(ptr, 64, host, 128, 64, 2, H2D) == 0
    assert card.read(ptr, 128) == bytes(range(64)) + bytes(range(128, 192))
    assert card.acl.rt.memcpy2d(ptr, 32, host, 128, 64, 2, H2D) == 100000
    assert card.acl.rt.free(ptr) == 0
    assert card.acl.rt.free_host(host) == 0


def test_host_memory_is_registered_once_and_on_a_page(card: Card) -> None:
    raw = ctypes.create_string_buffer(3 * 4096)
    page = -(-ctypes.addressof(raw) // 4096) * 4096
    assert card.acl.rt.host_register(page + 64, 4096, 0) == (0, 100000)
    pointer, code = card.acl.rt.host_register(page, 4096, 0)
    assert code == 0
    assert pointer
    assert card.acl.rt.host_register(page, 4096, 0)[1] == 507910
    assert card.acl.rt.host_unregister(page) == 0
    assert card.acl.rt.host_unregister(page) == 507911


def test_races_are_the_same_for_the_same_seed(make: Callable[..., Card]) -> None:
    def outcome(seed: int) -> bytes:
        card = make("compatible", seed=seed).open()
        ptr, a, b = card.device(64), card.pinned(64), card.pinned(64)
        card.fill(a, b"a" * 64)
        card.fill(b, b"b" * 64)
        other = card.ok(card.acl.rt.create_stream())
        rt = card.acl.rt
        with suppress(EmulatorError):  # where the race is visible at once
            card.ok(rt.memcpy_async(ptr, 64, a, 64, H2D, card.stream))
            card.ok(rt.memcpy_async(ptr, 64, b, 64, H2D, other))
        for stream in (other, card.stream):
            card.ok(rt.synchronize_stream(stream))
        return card.read(ptr, 1)

    first = [outcome(seed) for seed in range(12)]
    assert first == [outcome(seed) for seed in range(12)]
    assert len(set(first)) == 2


def test_host_memory_changed_before_its_copy_ran_is_found(make: Callable[..., Card]) -> None:
    card = make().open()
    model, rt = card.loaded("timing"), card.acl.rt
    ptr, host = card.device(64), card.pinned(64)
    with card.held():
        card.ok(model.execute_async(card.stream))
        card.ok(rt.memcpy_async(ptr, 64, host, 64, H2D, card.stream))
        card.fill(host, b"early")
    assert rt.synchronize_stream(card.stream) == 507013
    assert "changed before it was copied" in card.acl.get_recent_err_msg()


def test_host_memory_holds_nothing_useful_until_its_copy_ran(make: Callable[..., Card]) -> None:
    card = make().open()
    model, host = card.loaded("timing"), card.pinned(32)
    card.fill(host, bytes(32))
    with card.held():
        card.ok(model.execute_async(card.stream))
        card.ok(card.acl.rt.memcpy_async(host, 32, model.at_out[0], 32, D2H, card.stream))
        assert ctypes.string_at(host, 4) == b"\xdd" * 4
    card.ok(card.acl.rt.synchronize_stream(card.stream))
    assert ctypes.string_at(host, 4) != b"\xdd" * 4
