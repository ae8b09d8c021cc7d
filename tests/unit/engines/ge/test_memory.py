from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gepipe.engines.ge.buddy import Buddy, charged, span
from gepipe.engines.ge.memory import DevicePool
from gepipe.errors import DeviceMemoryError, InternalError

SIZES = st.integers(1, 1 << 18)
STEPS = st.lists(st.tuples(st.booleans(), SIZES, st.integers(0, 50)), max_size=80)


class Counter:
    """The two functions of ACL that a pool needs."""

    def __init__(self) -> None:
        self.out: dict[int, int] = {}
        self._next = 1 << 40

    def malloc(self, size, _policy) -> int:
        self._next += 1 << 30
        self.out[self._next] = size
        return self._next

    def memset(self, address, room, value, count) -> None:
        assert self.out[address] == room == count
        assert value == 0

    def free(self, address) -> None:
        del self.out[address]


@given(st.integers(300, 1 << 20), STEPS)
def test_pieces_are_aligned_and_never_overlap(capacity, steps) -> None:
    buddy = Buddy(capacity)
    fresh = [set(blocks) for blocks in buddy._free]
    held: dict[int, int] = {}
    for give, size, pick in steps:
        if give:
            offset = buddy.allocate(size)
            if offset is None:
                continue
            assert offset % 64 == 0
            assert offset + charged(size) <= buddy.capacity
            for other, theirs in held.items():
                assert offset + charged(size) <= other or other + charged(theirs) <= offset
            held[offset] = size
        elif held:
            offset = sorted(held)[pick % len(held)]
            del held[offset]
            buddy.free(offset)

    for offset in held:
        buddy.free(offset)

    assert buddy.in_use == 0
    assert buddy._free == fresh, "free blocks were not joined again"


@given(st.lists(SIZES, max_size=12))
def test_planned_range_takes_all_pieces(sizes) -> None:
    buddy = Buddy(span(sizes))

    for size in sorted(sizes, reverse=True):
        assert buddy.allocate(size) is not None


@given(STEPS)
def test_pool_frees_everything_and_counts(steps) -> None:
    acl = Counter()
    pool = DevicePool(acl, 1 << 20)
    held: dict[int, int] = {}
    peak = 0
    for number, (give, size, pick) in enumerate(steps):
        if give:
            try:
                address = pool.allocate(size)
            except DeviceMemoryError:
                continue
            assert address not in held
            for other, theirs in held.items():
                assert address + size <= other or other + theirs <= address
            held[address] = size
        elif held:
            address = sorted(held)[pick % len(held)]
            del held[address]
            pool.free(address)
        if number % 7 == 0:
            pool.prepare([size, size])
        if number % 11 == 0:
            pool.compact()
        peak = max(peak, sum(held.values()))
        assert pool.statistics().in_use == sum(held.values())
    for address in held:
        pool.free(address)

    assert pool.statistics().peak == peak
    pool.compact()
    left = pool.statistics()
    assert (left.in_use, left.prepared) == (0, 0)
    assert left.largest >= 1 << 20
    # Where memory was free in pieces only, there is a second block, and no piece spans two.
    assert left.fragmentation == 0 or left.blocks > 1
    pool.close()
    pool.close()
    assert not acl.out


@given(STEPS)
def test_pool_that_grows_gives_back_only_what_is_empty(steps) -> None:
    acl = Counter()
    pool = DevicePool(acl, 1 << 16, elastic=True)
    held: dict[int, int] = {}
    for number, (give, size, pick) in enumerate(steps):
        if give:
            held[pool.allocate(size)] = size
        elif held:
            address = sorted(held)[pick % len(held)]
            del held[address]
            pool.free(address)
        if number % 7 == 0:
            pool.prepare([size, size])
        if number % 5 == 0:
            pool.tidy()
        for address, length in held.items():
            assert any(
                base <= address < address + length <= base + n for base, n in acl.out.items()
            )
    for address in held:
        pool.free(address)

    assert pool.statistics().capacity <= sum(acl.out.values())
    pool.close()
    assert not acl.out


def test_pool_keeps_pieces_for_the_next_batch() -> None:
    pool = DevicePool(Counter(), 1 << 20)
    first = pool.allocate(1000)
    pool.free(first)

    assert pool.statistics().prepared == 1000
    assert pool.allocate(1000) == first


def test_leak_and_double_free_are_told() -> None:
    acl = Counter()
    pool = DevicePool(acl, 1 << 20)
    kept, freed = pool.allocate(10), pool.allocate(20)
    pool.free(freed)

    with pytest.raises(InternalError, match="freed twice"):
        pool.free(freed)
    with pytest.raises(InternalError, match="1 pieces of device memory, 10 bytes"):
        pool.close()
    assert kept
    assert not acl.out


def test_exhausted_pool_says_how_much_there_is() -> None:
    pool = DevicePool(Counter(), 1 << 20)
    pool.allocate(600_000)

    with pytest.raises(DeviceMemoryError, match=r"700000 bytes do not fit.*600000 are in use"):
        pool.allocate(700_000)


def test_a_pool_that_is_free_in_pieces_takes_another_block() -> None:
    acl = Counter()
    pool = DevicePool(acl, 1 << 16)
    pieces = [pool.allocate(8000) for _ in range(8)]
    for piece in pieces[::2]:
        pool.free(piece)

    large = pool.allocate(12_000)

    assert large not in pieces
    assert pool.statistics().blocks == 2
    for piece in (*pieces[1::2], large):
        pool.free(piece)
    pool.close()
    assert not acl.out
