"""Device memory, pinned memory, and copies between them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from gepipe.emulator.errors import EmulatorError
from tests.contract.card import D2D, D2H, H2D, Card

DATA = bytes(range(64))


def test_memory_is_aligned_to_64_bytes(card: Card) -> None:
    device = [card.device(size) for size in (1, 33, 100)]
    host = [card.pinned(size) for size in (1, 33, 100)]
    for ptr in (*device, *host):
        assert ptr % 64 == 0
    for ptr in device:
        assert card.acl.rt.free(ptr) == 0
    for ptr in host:
        assert card.acl.rt.free_host(ptr) == 0


def test_size_zero_and_pointer_zero_are_100000(card: Card) -> None:
    rt = card.acl.rt
    assert rt.malloc(0, 0) == (0, 100000)
    assert rt.malloc_host(0) == (0, 100000)
    assert rt.free(0) == 100000
    assert rt.free_host(0) == 100000
    assert rt.memcpy(0, 1, 64, 1, H2D) == 100000
    assert rt.memcpy(64, 1, 0, 1, H2D) == 100000


def test_host_memory_that_does_not_fit_is_207001(card: Card) -> None:
    for size in (1 << 62, -100, -1):
        assert card.acl.rt.malloc_host(size) == (0, 207001)


def test_only_policies_that_exist_are_accepted(card: Card) -> None:
    for policy in (*range(6), 0x100, 0x1000):
        assert card.acl.rt.free(card.ok(card.acl.rt.malloc(64, policy))) == 0
    assert card.acl.rt.malloc(64, 99) == (0, 100000)


def test_cached_memory_is_flushed_and_invalidated(card: Card) -> None:
    ptr = card.ok(card.acl.rt.malloc_cached(64, 0))
    assert card.acl.rt.mem_flush(ptr, 64) == 0
    assert card.acl.rt.mem_invalidate(ptr, 64) == 0
    assert card.acl.rt.mem_flush(0, 64) == 100000
    assert card.acl.rt.free(ptr) == 0


def test_a_copy_takes_its_bytes_there_and_back(card: Card) -> None:
    ptr = card.device(64)
    card.write(ptr, DATA)
    assert card.read(ptr, 64) == DATA
    assert card.acl.rt.free(ptr) == 0


def test_an_offset_into_an_allocation_is_a_pointer(card: Card) -> None:
    ptr = card.device(256)
    card.write(ptr + 128, DATA)
    assert card.read(ptr + 128, 64) == DATA
    assert card.acl.rt.free(ptr) == 0


def test_a_copy_on_the_device_moves_bytes(card: Card) -> None:
    first, second = card.device(64), card.device(64)
    card.write(first, DATA)
    assert card.acl.rt.memcpy(second, 64, first, 64, D2D) == 0
    assert card.read(second, 64) == DATA
    for ptr in (first, second):
        assert card.acl.rt.free(ptr) == 0


def test_a_copy_larger_than_its_destination_is_107000(card: Card) -> None:
    ptr, host = card.device(64), card.pinned(64)
    assert card.acl.rt.memcpy(ptr, 32, host, 64, H2D) == 107000
    assert card.acl.rt.memcpy_async(ptr, 32, host, 64, H2D, card.stream) == 107000
    assert card.acl.rt.memset(ptr, 32, 0, 64) == 107000
    assert card.acl.rt.free(ptr) == 0
    assert card.acl.rt.free_host(host) == 0


def test_an_unknown_kind_is_100000(card: Card) -> None:
    ptr, host = card.device(64), card.pinned(64)
    assert card.acl.rt.memcpy(ptr, 64, host, 64, 99) == 100000
    assert card.acl.rt.free(ptr) == 0
    assert card.acl.rt.free_host(host) == 0


def test_a_copy_of_nothing_succeeds(card: Card) -> None:
    ptr, host = card.device(64), card.pinned(64)
    assert card.acl.rt.memcpy(ptr, 64, host, 0, H2D) == 0
    assert card.acl.rt.memset(ptr, 64, 0, 0) == 0
    assert card.acl.rt.free(ptr) == 0
    assert card.acl.rt.free_host(host) == 0


def test_memset_fills(card: Card) -> None:
    ptr = card.device(64)
    assert card.acl.rt.memset(ptr, 64, 0x107, 32) == 0
    assert card.read(ptr, 32) == b"\x07" * 32
    assert card.acl.rt.memset_async(ptr, 64, 9, 64, card.stream) == 0
    assert card.acl.rt.synchronize_stream(card.stream) == 0
    assert card.read(ptr, 64) == b"\x09" * 64
    assert card.acl.rt.free(ptr) == 0


def test_memory_that_does_not_fit_is_207001(card: Card) -> None:
    free, total, code = card.acl.rt.get_mem_info(0)
    assert code == 0
    assert 0 < free <= total
    assert card.acl.rt.malloc(total + 64, 0) == (0, 207001)


def test_an_allocation_takes_its_size_rounded_up_to_32_and_32_more(emulated: Card) -> None:
    def free() -> int:
        return emulated.acl.rt.get_mem_info(0)[0]

    before = free()
    ptr = emulated.device(100)
    assert before - free() == 128 + 32
    emulated.ok(emulated.acl.rt.free(ptr))
    assert free() == before
    ptr = emulated.ok(emulated.acl.rt.malloc_align32(100, 0))
    assert before - free() == 128
    emulated.ok(emulated.acl.rt.free(ptr))
    emulated.ok(emulated.acl.rt.malloc(100, 6))  # pages of 1 GiB
    assert before - free() == 128


def test_memory_kinds_that_a_card_lacks_are_zero(emulated: Card, make: Callable[..., Card]) -> None:
    assert emulated.acl.rt.get_mem_info(1) == (0, 0, 0)
    assert make(memory_kind="hbm").open().acl.rt.get_mem_info(1)[1] == 24 << 30
    assert emulated.acl.rt.get_mem_info(99)[2] == 100000
    assert make("compatible").open().acl.rt.get_mem_info(1)[1] == 24 << 30  # as new releases do


def test_only_memory_of_acl_can_be_filled(emulated: Card, lenient: Card) -> None:
    array = np.ones(64, np.uint8)
    with pytest.raises(EmulatorError, match="not memory of ACL"):
        emulated.acl.rt.memset(array.ctypes.data, 64, 0, 64)
    assert lenient.acl.rt.memset(array.ctypes.data, 64, 0, 64) == 100000
    assert array.all()


def test_fresh_memory_is_garbage(emulated: Card) -> None:
    assert emulated.read(emulated.device(4), 4) == b"\xcd" * 4


def test_asynchronous_copies_happen_by_the_time_the_stream_is_synchronised(card: Card) -> None:
    ptr, there, back = card.device(64), card.pinned(64), card.pinned(64)
    card.fill(there, DATA)
    assert card.acl.rt.memcpy_async(ptr, 64, there, 64, H2D, card.stream) == 0
    assert card.acl.rt.memcpy_async(back, 64, ptr, 64, D2H, card.stream) == 0
    assert card.acl.rt.synchronize_stream(card.stream) == 0
    assert ctypes.string_at(back, 64) == DATA
    assert card.acl.rt.free(ptr) == 0
    for host in (there, back):
        assert card.acl.rt.free_host(host) == 0


def test_the_newer_kinds_name_the_same_directions(card: Card) -> None:
    first, second, host = card.device(64), card.device(64), card.pinned(64)
    card.fill(host, DATA)
    for target, source, kind in ((first, host, 4), (second, first, 6), (first, second, 4)):
        assert card.acl.rt.memcpy(target, 64, source, 64, kind) == 0
    assert card.read(first, 64) == DATA
    for ptr in (first, second):
        assert card.acl.rt.free(ptr) == 0
    assert card.acl.rt.free_host(host) == 0


def test_rows_are_copied_in_a_stream(card: Card) -> None:
    rt = card.acl.rt
    ptr, host = card.device(256), card.pinned(256)
    card.fill(host, bytes(range(256)))
    assert rt.memcpy2d_async(ptr, 64, host, 128, 64, 2, H2D, card.stream) == 0
    assert rt.synchronize_stream(card.stream) == 0
    assert card.read(ptr, 128) == bytes(range(64)) + bytes(range(128, 192))
    assert rt.memcpy2d_async(ptr, 64, host, 128, 64, 2, D2D, card.stream) == 100000
    assert rt.free(ptr) == 0
    assert rt.free_host(host) == 0
