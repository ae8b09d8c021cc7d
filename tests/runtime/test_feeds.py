"""Feeds with memory of their own, and feeds that a part-filled batch waits for: real workers."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from gepipe.io.failures import Failure
from gepipe.runtime.feed import ThreadedFeed
from gepipe.runtime.options import RunOptions, Start
from tests.lent import LentFeed, ReadLent, WriteLent
from tests.support import Fate, Infer, entries, pause, supervisor, undisturbed, workers_of


def run_over(subject, feed) -> list:
    outcomes: list = []
    try:
        subject.run(lambda _: Start(feed), outcomes.extend)
    finally:
        feed.close()
    return outcomes


@pytest.mark.parametrize("kept", [False, True])
def test_items_of_any_number_pass_through_a_few_cells_of_memory(kept) -> None:
    feed = LentFeed(range(200), cells=5, kept=kept)

    with supervisor(WriteLent(), post=ReadLent(kept=kept), workers=(2, 1, 2)) as subject:
        assert run_over(subject, feed) == undisturbed(range(200))
    assert sorted(feed.used_seqs) == list(range(200))
    assert feed.settled_seqs == list(range(200))


def test_replacements_get_the_memory_too(tmp_path) -> None:
    fates = tuple(
        Fate(role, "mid-write", "SIGKILL", str(tmp_path), number)
        for role, number in [("pre", 20), ("post", 30), ("pre", 50), ("post", 60)]
    )
    feed = LentFeed(range(100), cells=8, kept=True)

    with supervisor(WriteLent(fates), post=ReadLent(fates), workers=(2, 1, 2)) as subject:
        assert run_over(subject, feed) == undisturbed(range(100))
    assert len(list(tmp_path.iterdir())) == 4


def test_memory_of_an_item_that_kills_its_workers_is_given_back_once(tmp_path) -> None:
    fate = (Fate("pre", "mid-write", "SIGKILL", str(tmp_path), number=7, times=9),)
    feed = LentFeed(range(40), cells=5)

    with supervisor(WriteLent(fate), post=ReadLent(kept=False), workers=(2, 1, 1)) as subject:
        outcomes = run_over(subject, feed)

    assert [o.index for o in outcomes if isinstance(o, Failure)] == [7]
    assert sorted(feed.used_seqs) == feed.settled_seqs == list(range(40))


def test_the_next_run_brings_its_own_memory_to_the_same_workers() -> None:
    with supervisor(WriteLent(), post=ReadLent(), workers=(2, 1, 2)) as subject:
        assert run_over(subject, LentFeed(range(30), 5, kept=True)) == undisturbed(range(30))
        pids = workers_of(subject)
        numbers = range(500, 560)

        assert run_over(subject, LentFeed(numbers, 9, kept=True)) == undisturbed(numbers)
        assert workers_of(subject) == pids


def test_worker_that_died_between_two_runs_is_replaced_by_one_with_the_memory_of_now() -> None:
    with supervisor(WriteLent(), post=ReadLent()) as subject:
        run_over(subject, LentFeed(range(10), 5, kept=True))
        for pid in workers_of(subject, "pre") + workers_of(subject, "post"):
            os.kill(pid, 9)

        assert run_over(subject, LentFeed(range(50, 90), 6, kept=True)) == undisturbed(
            range(50, 90)
        )


def memories_of(pid: int) -> int:
    """Return how many pieces of shared memory a process holds, by descriptor or in its map."""
    fds = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return sum("memfd:gepipe" in each for each in (*fds, *maps))


def test_memory_of_earlier_runs_is_let_go_of_by_the_workers() -> None:
    with supervisor(WriteLent(), post=ReadLent()) as subject:
        held = []
        for _ in range(5):
            run_over(subject, LentFeed(range(8), 5, kept=True))
            held.append([memories_of(pid) for pid in workers_of(subject)])

    assert held[1:] == held[:1] * 4


class Patient(ThreadedFeed):
    live = False


@dataclass
class WholeBatches(Infer):
    def submit(self, inputs, outputs, count):
        if count != 4:
            raise RuntimeError(f"a batch of {count}")
        return super().submit(inputs, outputs, count)


def test_batch_waits_for_a_feed_that_is_not_live_however_long_it_takes() -> None:
    """Or what shares a batch, and with it the last bits of results, would depend on the time."""

    def source():
        for entry in entries(range(16)):
            pause(0.02)
            yield entry

    options = RunOptions(max_wait_s=0.0)
    with supervisor(infer=WholeBatches(), options=options) as subject:
        assert run_over(subject, Patient(source(), ahead=4)) == undisturbed(range(16))


def test_feed_is_told_in_the_thread_of_the_run_and_after_the_outcomes_went_out() -> None:
    threads = set()
    emitted: list = []

    class Listening(LentFeed):
        def used(self, seqs) -> None:
            threads.add(threading.current_thread())
            super().used(seqs)

        def settled(self, outcomes) -> None:
            assert emitted[-len(outcomes) :] == outcomes
            super().settled(outcomes)

    feed = Listening(range(20), cells=5)
    with supervisor(WriteLent(), post=ReadLent(kept=False)) as subject:
        subject.run(lambda _: Start(feed), emitted.extend)
    feed.close()

    assert emitted == undisturbed(range(20))
    assert threads == {threading.current_thread()}
