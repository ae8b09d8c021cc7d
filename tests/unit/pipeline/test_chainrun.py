"""What passes between the legs of a chain, with supervisors that do what the test says."""

from __future__ import annotations

import marshal
import select
import threading
from collections.abc import Callable

import pytest

from gepipe.errors import Interrupted, WorkerError
from gepipe.io.failures import Failure
from gepipe.io.sink import Record
from gepipe.io.source import Entry
from gepipe.pipeline.chainrun import ChainRun, is_border
from gepipe.runtime.feed import ListedFeed
from gepipe.runtime.options import Start
from tests.support import pause

BATCH = 4


class Leg:
    """Stands for a supervisor: takes all that its feed gives, and emits so many at once."""

    def __init__(self, work: Callable, at_once: int = BATCH) -> None:
        self._work = work
        self._at_once = at_once
        self._stop = threading.Event()
        self.largest = 0

    def run(self, start, emit) -> None:
        begun = start(BATCH)
        feed, seq, ended = begun.feed, begun.first, False
        done: list = []
        while not ended:
            if self._stop.is_set():
                raise Interrupted("stopped")
            entries, ended, _ = feed.take(BATCH)
            for entry in entries:
                done.append(self._work(seq, entry))
                seq += 1
            self.largest = max(self.largest, len(entries))
            while done and (ended or not entries or len(done) >= self._at_once):
                some, done = done[: self._at_once], done[self._at_once :]
                emit(some)
                feed.settled(some)
            if not entries and not ended:
                self._sleep(feed.fileno())

    def _sleep(self, fd: int) -> None:
        """Wait until the feed says that it has something: nobody asks it before."""
        while not select.select([fd], [], [], 0.1)[0] and not self._stop.is_set():
            pass

    def request_stop(self) -> None:
        self._stop.set()


def splitting(counts):
    def work(seq, entry):
        if counts[seq] < 0:
            return Failure(seq, entry.source, "cut", "unsplit", "on purpose")
        parts = [(b"%d" % n, ((n % 3,),)) for n in range(counts[seq])]
        return Record(seq, entry.source, marshal.dumps((b"head", parts)))

    return work


def reading(seq, entry):
    return Record(seq, entry.source, b"%s of %s" % (entry.payload[1], entry.source.encode()))


def joining(seq, entry):
    return Record(seq, entry.source, entry.payload[1])


def chain_run(counts, *legs, at_once=BATCH):
    out: list = []
    legs = legs or (Leg(splitting(counts), at_once), Leg(reading))

    def start(group):
        assert group == 16
        entries = [Entry(str(n), b"%d" % n) for n in range(len(counts))]
        return Start(ListedFeed(iter(entries), len(entries)))

    singles = [False] * (len(legs) - 1)
    return ChainRun(legs, Leg(joining), start, out.extend, singles=singles, keep=False), out


def run(subject) -> None:
    """Run it, and fail instead of waiting for ever."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            subject.work()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "the chain stands still"
    if errors:
        raise errors[0]


@pytest.mark.parametrize("at_once", [1, 4, 64])
@pytest.mark.parametrize(
    "counts",
    [[2, 0, 3] * 40, [5000] * 5, [0] * 100, [-1, 4, 0, -1] * 30, [4000, 200] * 4, []],
    ids=["few", "thousands", "none", "unsplit", "mixed", "nothing"],
)
def test_all_comes_out_in_order_however_much_is_emitted_at_once(counts, at_once) -> None:
    subject, out = chain_run(counts, at_once=at_once)
    run(subject)

    assert [record.index for record in out] == list(range(len(counts)))
    for record, count in zip(out, counts, strict=True):
        if count < 0:
            assert record.payload == ("cut", "unsplit", "on purpose")
            continue
        head, parts = record.payload
        assert head == b"head"
        wanted = [(b"%d" % n, b"%d of %d" % (n, record.index)) for n in range(count)]
        assert list(parts) == wanted


@pytest.mark.parametrize("facts", [1, 90, 5000])
@pytest.mark.parametrize("made", [1, 90, 5000])
@pytest.mark.parametrize("depth", [2, 3])
def test_bytes_between_the_legs_are_bounded_without_a_standstill(
    monkeypatch, facts, made, depth
) -> None:
    """However large an item is: of those larger than the room, one by one goes through."""
    monkeypatch.setattr("gepipe.pipeline.chainrun._NBYTES", 2000)
    monkeypatch.setattr("gepipe.pipeline.passages._JOIN_NBYTES", 1000)
    monkeypatch.setattr("gepipe.pipeline.fan._CLOSED_AFTER_NBYTES", 500)
    counts, largest = [3, 0, 5, 1] * 10, 0

    def cut(seq, entry):
        parts = [(b"f" * facts, ((n % 3,),)) for n in range(counts[seq])]
        return Record(seq, entry.source, marshal.dumps((b"head", parts)))

    def again(seq, entry):
        return Record(seq, entry.source, marshal.dumps((b"mid", [(b"x", ((1,),))] * 2)))

    def read(seq, entry):
        nonlocal largest
        last = subject._last
        largest = max(largest, last.nbytes + sum(fan.nbytes for fan in subject.fans))
        return Record(seq, entry.source, b"r" * made)

    middle = [Leg(again, 1)] * (depth - 2)
    subject, out = chain_run(counts, Leg(cut, 1), *middle, Leg(read, 1))
    run(subject)

    assert [len(record.payload[1]) for record in out] == counts
    item = 5 * (facts + made * (depth - 1) + 10)
    assert largest < 2000 + 16 * item // 2, "a group is let in only where nothing else moves"


def test_results_wait_where_the_join_is_slow(monkeypatch) -> None:
    monkeypatch.setattr("gepipe.pipeline.chainrun._NBYTES", 2000)
    monkeypatch.setattr("gepipe.pipeline.passages._JOIN_NBYTES", 200)
    most = 0

    class Join(Leg):
        def _sleep(self, fd: int) -> None:
            nonlocal most
            pause(0.002)
            most = max(most, subject._last.nbytes + subject.fans[0].nbytes)
            super()._sleep(fd)

    def big(seq, entry):
        return Record(seq, entry.source, b"r" * 400)

    subject, out = chain_run([2] * 60, Leg(splitting([2] * 60)), Leg(big))
    subject._join = Join(joining)
    run(subject)

    assert len(out) == 60
    assert most < 2000 + 2 * 4 * 400


def test_three_legs_pass_groups_on() -> None:
    counts = [3, 0, 2, 7] * 12

    def again(seq, entry):
        return Record(seq, entry.source, marshal.dumps((b"mid", [(b"x", ((1,),))] * 2)))

    subject, out = chain_run(counts, Leg(splitting(counts), 64), Leg(again, 64), Leg(reading))
    run(subject)

    assert [len(record.payload[1]) for record in out] == counts
    for record in out:
        for _, (head, parts) in record.payload[1]:
            assert (head, len(parts)) == (b"mid", 2)


@pytest.mark.parametrize("number", [0, 1])
def test_the_error_of_a_leg_ends_all_and_is_the_one_that_is_raised(number) -> None:
    def breaking(seq, entry):
        if seq == 30:
            raise WorkerError("200 workers in a row")
        return splitting([3] * 100)(seq, entry) if number == 0 else reading(seq, entry)

    legs = [Leg(splitting([3] * 100)), Leg(reading)]
    legs[number] = Leg(breaking)
    subject, out = chain_run([3] * 100, *legs)
    with pytest.raises(WorkerError, match="200 workers"):
        run(subject)
    assert [record.index for record in out] == list(range(len(out)))


def test_a_model_that_does_not_open_ends_those_that_wait_for_it() -> None:
    class Closed(Leg):
        def run(self, start, emit):  # noqa: ARG002
            raise WorkerError("does not open")

    subject, out = chain_run([3] * 10, Leg(splitting([3] * 10)), Closed(reading))
    with pytest.raises(WorkerError, match="does not open"):
        run(subject)
    assert out == []


def test_groups_begin_small_and_a_run_that_goes_on_meets_their_borders() -> None:
    for batch, group, borders in (
        (1, 16, [1, 2, 4, 8, 16, 32, 48, 64]),
        (4, 16, [4, 8, 16, 32, 48, 64]),
        (5, 20, [5, 10, 20, 40, 60]),
        (32, 32, [32, 64]),
    ):
        found = [count for count in range(1, 65) if is_border(count, batch, group)]
        assert found == borders
        assert {group * n for n in range(1, 64 // group + 1)} <= set(found)


def test_the_first_results_come_before_the_group_is_full() -> None:
    shown, more = threading.Event(), threading.Event()
    entries = [Entry(str(n), b"%d" % n) for n in range(16)]

    class Slow(ListedFeed):
        """Gives one batch, and the rest when results have been seen."""

        def take(self, count):
            if shown.is_set():
                more.wait(10)
            shown.set()
            return super().take(count)

    out: list = []

    def emit(outcomes) -> None:
        out.extend(outcomes)
        more.set()

    legs = (Leg(splitting([1] * 16)), Leg(reading))
    feed = Slow(iter(entries), 16)
    subject = ChainRun(legs, Leg(joining), lambda _: Start(feed), emit, singles=[False], keep=False)
    run(subject)

    assert more.is_set()
    assert len(out) == 16


def test_live_items_do_not_pile_up_before_a_slow_model() -> None:
    entries = [Entry(str(n), b"%d" % n) for n in range(40)]
    split: list[int] = []
    behind: list[int] = []

    def cut(seq, entry):
        split.append(seq)
        return splitting([1] * 40)(seq, entry)

    def read(seq, entry):
        pause(0.01)
        behind.append(len(split) - seq)
        return reading(seq, entry)

    feed = ListedFeed(iter(entries), 40)
    feed.live = True
    out: list = []
    subject = ChainRun(
        (Leg(cut), Leg(read)), Leg(joining), lambda _: Start(feed), out.extend,
        singles=[False], keep=False,
    )  # fmt: skip
    run(subject)

    assert len(out) == 40
    assert max(behind) <= 3 * BATCH + BATCH, "parts that may wait, and a batch that is split"
    assert max(behind) > BATCH, "the second model has something to do"
