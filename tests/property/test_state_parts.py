"""Properties of the small parts around the state: order, slots, frames, layouts, portions."""

from __future__ import annotations

import mmap
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gepipe.engines.gears import portions
from gepipe.errors import InternalError
from gepipe.runtime.channel import _Frames, encode
from gepipe.runtime.memory import SlotLayout
from gepipe.runtime.order import Reorderer
from gepipe.runtime.schedule import rows_per_ticket
from gepipe.runtime.slots import Slot, SlotTable
from gepipe.tensors import (
    ALIGNMENT,
    DTYPE_OF_ACL,
    DTYPE_OF_ONNX,
    DTYPE_OF_TRITON,
    DTYPES,
    TensorSpec,
)

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.binary(max_size=200) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=8,
)


@given(order=st.permutations(range(12)), first=st.integers(0, 5))
def test_outcomes_are_released_once_and_in_order(order, first) -> None:
    reorderer: Reorderer[int] = Reorderer(first)
    released: list[int] = []

    for seq in order:
        released += reorderer.push(first + seq, first + seq)
        assert released == list(range(first, first + len(released)))
        assert len(reorderer) + len(released) <= len(order)

    assert len(released) == len(order)
    with pytest.raises(InternalError):
        reorderer.push(first + 3, 0)


@given(depth=st.integers(1, 4), moves=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(Slot))))
def test_slot_table_never_lends_a_slot_twice(depth, moves) -> None:
    table, lent = SlotTable(depth), {}

    for at, to in moves:
        if at >= depth:
            slot = table.acquire()
            assert (slot is None) == (len(lent) == depth)
            if slot is not None:
                assert slot not in lent
                lent[slot] = Slot.FILLING
            continue
        try:
            table.move(at, to)
        except InternalError:
            continue
        assert at in lent
        lent[at] = to
        if to is Slot.FREE:
            del lent[at]
        assert table.used == len(lent)


@given(messages=st.lists(st.lists(plain, max_size=4).map(tuple), max_size=8), seed=st.integers())
def test_messages_survive_any_cutting_of_the_stream(messages, seed) -> None:
    stream = b"".join(encode(message) for message in messages)
    rng, frames, received = random.Random(seed), _Frames(), []

    while stream:
        size = rng.choice([1, 2, 3, 4, 5, 7, 64, 1000])
        received += frames.feed(stream[:size])
        stream = stream[size:]

    assert received == messages


@given(message=st.lists(plain, max_size=4).map(tuple))
def test_a_message_that_comes_whole_is_read_at_once(message) -> None:
    assert _Frames().feed(encode(message)) == [message]


@given(count=st.integers(1, 200), gears=st.sets(st.integers(1, 64), max_size=5).map(sorted))
def test_portions_cover_each_row_once(count, gears) -> None:
    cut = list(portions(count, gears))

    assert [row for p in cut for row in range(p.first, p.first + p.count)] == list(range(count))
    assert all(p.count <= p.gear and (not gears or p.gear in gears) for p in cut)
    assert all(p.count == p.gear for p in cut[:-1]), "padding belongs to the last execution only"


rows = st.builds(
    TensorSpec,
    st.just("t"),
    st.sampled_from(sorted(DTYPES)),
    st.lists(st.integers(1, 9), max_size=4).map(tuple),
)


@given(specs=st.lists(rows, min_size=1, max_size=5).map(tuple), batch=st.integers(1, 16))
def test_tensors_of_a_slot_are_aligned_and_apart(specs, batch) -> None:
    layout = SlotLayout.of(specs, batch)

    ends = 0
    for tensor, offset in zip(layout.tensors, layout.offsets, strict=True):
        assert offset % ALIGNMENT == 0
        assert offset >= ends
        assert tensor.shape[0] == batch
        ends = offset + tensor.nbytes
    assert ends <= layout.slot_nbytes
    assert layout.slot_nbytes % mmap.PAGESIZE == 0
    assert SlotLayout.from_plain(layout.to_plain()) == layout


@pytest.mark.parametrize("table", [DTYPE_OF_ONNX, DTYPE_OF_TRITON, DTYPE_OF_ACL])
def test_each_data_type_has_one_name_in_each_world(table) -> None:
    assert sorted(d.name for d in table.values()) == sorted(DTYPES)


@given(
    waiting=st.integers(1, 500), cost=st.just(0.0) | st.floats(1, 1e10), workers=st.integers(1, 64)
)
def test_a_ticket_leaves_work_for_the_other_workers(waiting, cost, workers) -> None:
    rows_count = rows_per_ticket(waiting, cost, workers)

    assert 1 <= rows_count <= waiting
    assert rows_count <= -(-waiting // workers)
