"""Parts of items: in batches of one shape, put back in their places, whatever comes when."""

from __future__ import annotations

import marshal
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gepipe.io.failures import Failure
from gepipe.io.sink import Record
from gepipe.pipeline.fan import Fan, is_broken, result_of
from gepipe.pipeline.partbatches import LiveBatches, SealedBatches
from gepipe.pipeline.tally import PartTally

BATCH, GROUP = 3, 4
SHAPES = st.sampled_from([((1,),), ((2,),), ((3,),)])
#: Of each item the shapes of its parts; None for one that is not split.
ITEMS = st.lists(st.none() | st.lists(SHAPES, max_size=9), max_size=14)
#: What happens next: an item arrives, the leg takes parts, or gives the outcome of one.
MOVES = st.lists(st.sampled_from("atto"), max_size=200)


def split(index, shapes):
    parts = [(b"%d.%d" % (index, n), shape) for n, shape in enumerate(shapes)]
    return marshal.dumps((b"head %d" % index, parts))


class Leg:
    """Stands for the leg behind: takes batches, and gives outcomes in the order of the parts."""

    def __init__(self, batches, items, *, first=0) -> None:
        self.finished = {}
        self.fan = Fan(batches, self._finish)
        self.batches: list[list[tuple]] = [[]]
        self._arriving = deque(enumerate(items[first:], first))
        self._owed: deque[tuple[int, str, bytes]] = deque()
        self._seq = 0
        self.most = 0

    def _finish(self, item, gathered) -> None:
        assert item.key not in self.finished
        self.finished[item.key] = gathered

    def move(self, what: str) -> None:
        if what == "a" and self._arriving:
            index, shapes = self._arriving.popleft()
            if shapes is not None:
                self.fan.add(index, f"item {index}", b"payload", split(index, shapes))
            if (index + 1) % GROUP == 0:
                self.fan.close_group()
        elif what == "t":
            self.take()
        elif what == "o" and self._owed:
            self.give()
        self.most = max(self.most, self.fan.parts)

    def take(self) -> int:
        entries, sealed = self.fan.take(BATCH - len(self.batches[-1]))
        for entry in entries:
            self._owed.append((self._seq, entry.source, entry.payload[1]))
            self._seq += 1
            self.batches[-1].append((entry.payload[1], entry.shapes))
        if self.batches[-1] and (sealed or len(self.batches[-1]) == BATCH):
            self.batches.append([])
        return len(entries)

    def give(self) -> None:
        seq, source, facts = self._owed.popleft()
        outcome = Record(seq, source, b"of " + facts)
        if facts.endswith(b".5"):
            outcome = Failure(seq, source, "read", "kind", "why")
        self.fan.settle(self.fan.next_part(), result_of(outcome))

    def finish(self) -> None:
        while self._arriving:
            self.move("a")
        self.fan.close_group()
        while self.fan.waiting or self._owed:
            self.take()
            while self._owed:
                self.give()


def check(leg, items, first=0):
    for index, shapes in enumerate(items[first:], first):
        if shapes is None:
            assert index not in leg.finished
            continue
        head, parts = leg.finished[index]
        assert head == b"head %d" % index
        for n, (facts, result) in enumerate(parts):
            assert facts == b"%d.%d" % (index, n)
            assert is_broken(result) == (n == 5)
            assert n == 5 or result == b"of " + facts
        assert len(parts) == len(shapes)
    for batch in leg.batches:
        assert len({shapes for _, shapes in batch}) <= 1
    assert (leg.fan.items, leg.fan.parts) == (0, 0)
    tally = PartTally()
    for index, item in sorted(leg.finished.items()):
        tally.add(PartTally.of(f"item {index}", item))
    counts = [len(shapes or ()) for shapes in items[first:]]
    broken = [index for index, count in enumerate(counts, first) if count > 5]
    why = f"item {broken[0]}, part 5: read, kind: why" if broken else ""
    assert tally == PartTally(sum(counts) - len(broken), len(broken), len(broken), why)


@given(ITEMS, MOVES)
@settings(max_examples=200)
def test_every_part_comes_back_to_its_place_and_batches_depend_on_the_items_alone(items, moves):
    leg, plain = Leg(SealedBatches(BATCH), items), Leg(SealedBatches(BATCH), items)
    for move in moves:
        leg.move(move)
    leg.finish()
    plain.finish()

    check(leg, items)
    assert leg.batches == plain.batches


@given(ITEMS, MOVES)
@settings(max_examples=200)
def test_live_items_lose_nothing_either(items, moves):
    leg = Leg(LiveBatches(BATCH), items)
    for move in moves:
        leg.move(move)
    leg.finish()

    check(leg, items)


@given(ITEMS, st.integers(0, 3))
@settings(max_examples=200)
def test_a_run_that_goes_on_at_a_group_has_the_batches_of_the_whole_run(items, group):
    first = min(group * GROUP, len(items) // GROUP * GROUP)
    whole, rest = Leg(SealedBatches(BATCH), items), Leg(SealedBatches(BATCH), items, first=first)
    whole.finish()
    rest.finish()

    check(rest, items, first)
    before = sum(
        1 for batch in whole.batches for facts, _ in batch[:1] if int(facts.split(b".")[0]) < first
    )
    assert whole.batches[before:] == rest.batches


@given(ITEMS, MOVES)
@settings(max_examples=100)
def test_bytes_close_batches_by_the_items_alone_and_are_let_go_of(items, moves):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gepipe.pipeline.fan._CLOSED_AFTER_NBYTES", 25)
        leg, plain = Leg(SealedBatches(BATCH), items), Leg(SealedBatches(BATCH), items)
        for move in moves:
            leg.move(move)
            owed = len(leg._owed)
            assert leg.fan.moving == (leg.fan.waiting or owed > 0)
        leg.finish()
        plain.finish()

        check(leg, items)
        assert leg.batches == plain.batches
        assert leg.fan.nbytes == 0


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12))
@settings(max_examples=100)
def test_parts_of_parts_close_their_groups_in_turn(counts):
    """A group is over when all its parts are out, before any part of the next is: once for each."""
    fan: Fan[int] = Fan(SealedBatches(BATCH), lambda *_: None)
    over = settled = 0

    def look() -> None:
        nonlocal over
        while fan.group_is_over():
            over += 1

    arriving = deque(enumerate(counts))
    while arriving or fan.waiting:
        if arriving:
            index, count = arriving.popleft()
            fan.add(index, "", b"", split(index, [((1,),)] * count))
            fan.close_group()
            look()
        for _ in fan.take(BATCH)[0] if index % 2 or not arriving else ():
            fan.settle(fan.next_part(), b"")
            settled += 1
            look()
            whole = [n for n in range(index + 1) if sum(counts[: n + 1]) <= settled]
            assert over == len(whole)
    assert over == len(counts)


def test_the_only_part_of_an_item_fails_it_at_any_depth() -> None:
    ends = []
    outer: Fan = Fan(SealedBatches(1), lambda item, end: ends.append((item.key, end)), single=True)
    inner: Fan = Fan(SealedBatches(1), lambda item, end: outer.settle(item.key, end), single=True)
    for key, end in enumerate([("read", "nan", "holds NaN"), b"good"]):
        outer.add(key, "", b"", split(key, [()]))
        outer.take(1)
        inner.add(outer.next_part(), "", b"", split(key, [()]))
        inner.take(1)
        inner.settle(inner.next_part(), end)

    (_, bad), (_, (head, ((_, (_, ((_, good),))),))) = ends
    assert (bad, head, good) == (("read", "nan", "holds NaN"), b"head 1", b"good")
    tallies = [PartTally.of("", end) for _, end in ends]
    assert tallies == [PartTally(), PartTally(good=1)]


def test_parts_of_parts_that_fail_mar_one_item() -> None:
    tally = PartTally()

    def finish(item, end) -> None:
        tally.add(PartTally.of(f"item {item.key}", end))

    outer: Fan = Fan(SealedBatches(1), finish)
    inner: Fan = Fan(SealedBatches(1), lambda item, end: outer.settle(item.key, end))
    for item in range(2):
        outer.add(item, "", b"", split(item, [(), ()]))
        for _ in range(2):
            outer.take(1)
            inner.add(outer.next_part(), "", b"", split(item, [(), ()]))
            for _ in range(2):
                inner.take(1)
                inner.settle(inner.next_part(), b"good" if item else ("read", "nan", "why"))

    assert tally == PartTally(4, 4, 1, "item 0, part 0.0: read, nan: why")
    assert (outer.items, outer.parts) == (0, 0)


def test_of_live_parts_those_that_have_waited_longest_leave_first() -> None:
    batches: LiveBatches[str] = LiveBatches(2)
    for part in ("a0", "b1", "a2", "a3", "b4", "c5", "a6"):
        batches.add(part, ((ord(part[0]),),))

    taken = []
    while batches:
        some, _ = batches.take(2)
        taken.append(some)

    assert taken == [["a0", "a2"], ["b1", "b4"], ["a3", "a6"], ["c5"]]
