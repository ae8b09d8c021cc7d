"""Runs of pre alone, and post in input order: real workers."""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass

import numpy as np
import pytest

from gepipe.errors import Interrupted, StageError
from gepipe.io.failures import Failure
from gepipe.runtime.memory import SlotLayout
from gepipe.runtime.options import RunOptions, SlotPlan
from gepipe.runtime.supervisor import Supervisor
from tests.support import (
    Fate,
    Infer,
    Read,
    Write,
    crew,
    entries,
    is_alive,
    listed,
    outcomes_of,
    supervisor,
    wait_until,
    workers_of,
)

# --- pre alone ------------------------------------------------------------------------------------


class Alone(Write):
    """Makes a record of an item without a row to write it to."""

    def write(self, payload, rows) -> bytes:
        assert not rows
        super().write(payload, {"x": np.zeros(64)})
        return b"record of %d" % struct.unpack_from("<q", payload)


def alone(body=None, workers: int = 2, *, timeout_s: float = 60.0, batch: int = 4) -> Supervisor:
    def plan(info) -> SlotPlan:
        assert not info.inputs
        layout = SlotLayout.of((), batch)
        return SlotPlan(layout, layout, depth=2)

    crews = {"pre": crew(body or Alone(), workers, timeout_s)}
    return Supervisor(crews, plan, RunOptions(start_timeout_s=20))  # type: ignore[arg-type]


def records(numbers) -> list[tuple[int, str, bytes]]:
    return [(at, f"item {number}", b"record of %d" % number) for at, number in enumerate(numbers)]


@pytest.mark.parametrize("count", [0, 1, 4, 5, 500])
def test_what_pre_makes_is_the_record_where_there_is_nothing_else(count) -> None:
    with alone(Alone(delay_s=(0.0, 0.001))) as subject:
        outcomes, statistics = outcomes_of(subject, entries(range(count)))

    assert outcomes == records(range(count))
    assert (statistics.done, statistics.failed) == (count, 0)
    assert list(statistics.stages) == ["pre"]
    assert statistics.slot_nbytes == 0
    assert statistics.slots_used == (0, 0)


def test_pre_alone_serves_run_after_run() -> None:
    with alone() as subject:
        outcomes_of(subject, entries(range(10)))
        pids = workers_of(subject)

        assert outcomes_of(subject, entries(range(50, 80)))[0] == records(range(50, 80))
        assert workers_of(subject) == pids


def test_pre_alone_survives_deaths_and_sets_aside_what_fails(tmp_path) -> None:
    fates = (
        Fate("pre", "mid-write", "SIGSEGV", str(tmp_path), number=3),
        Fate("pre", "mid-write", "SIGKILL", str(tmp_path), number=11, times=9),
        Fate("pre", "mid-write", "hang", str(tmp_path), number=17, times=9),
    )
    body = Alone(fates, faults={20: ("broken", "on purpose")})
    with alone(body, timeout_s=1.5) as subject:
        outcomes, _ = outcomes_of(subject, entries(range(30)))

    failed = [(f.index, f.stage, f.kind) for f in outcomes if isinstance(f, Failure)]
    assert failed == [
        (11, "stage pre", "crash"),
        (17, "stage pre", "timeout"),
        (20, "stage pre", "broken"),
    ]
    assert [o.index for o in outcomes] == list(range(30))


def test_pre_alone_stops_after_too_many_failures() -> None:
    body = Alone(faults={5: ("broken", "on purpose"), 9: ("broken", "again")})
    outcomes: list = []
    with alone(body) as subject, pytest.raises(StageError, match="no more than 1 failures"):
        subject.run(listed(entries(range(30)), max_failures=1), outcomes.extend)

    assert [o.index for o in outcomes] == list(range(10))


def test_pre_alone_stops_on_request_and_leaves_no_process() -> None:
    outcomes: list = []
    pids: set[int] = set()
    with alone(Alone(delay_s=0.01)) as subject:

        def emit(some) -> None:
            pids.update(workers_of(subject))
            outcomes.extend(some)

        def stop() -> None:
            wait_until(lambda: len(outcomes) > 5)
            subject.request_stop()

        thread = threading.Thread(target=stop)
        thread.start()
        with pytest.raises(Interrupted):
            subject.run(listed(entries(range(10_000))), emit)
        thread.join()

    assert pids
    assert [o.index for o in outcomes] == list(range(len(outcomes)))
    wait_until(lambda: not any(map(is_alive, pids)))


# --- post in input order --------------------------------------------------------------------------


@dataclass
class Remember(Read):
    """Says after which item its process has read this one."""

    last: int = -1

    def read(self, rows, meta) -> bytes:
        record = super().read(rows, meta)
        number = (int(record) - 1) // 2
        before, self.last = self.last, number
        return b"%d after %d" % (number, before)


def chain_of(outcomes) -> list[tuple[int, int]]:
    """Return (number, number before it in its process) of each record."""
    pairs = (o.payload.split(b" after ") for o in outcomes if not isinstance(o, Failure))
    return [(int(number), int(before)) for number, before in pairs]


@pytest.mark.parametrize("depth", [1, 3])
def test_ordered_post_reads_in_input_order_whatever_is_ready_first(depth) -> None:
    delays = (0.0, 0.004)
    with supervisor(
        Write(delay_s=delays, faults={5: ("broken", ""), 13: ("broken", "")}),
        Infer(delay_s=delays, fail_on=21),
        Remember(),
        workers=(3, 2, 1),
        depth=depth,
        ordered=True,
    ) as subject:
        outcomes, _ = outcomes_of(subject, entries(range(200)))

    numbers = [number for number in range(200) if number not in (5, 13, 21)]
    assert chain_of(outcomes) == list(zip(numbers, [-1, *numbers[:-1]], strict=True))


@pytest.mark.parametrize("times", [1, 9])
def test_ordered_post_goes_on_in_order_after_a_death(tmp_path, times) -> None:
    fate = (Fate("post", "mid-write", "SIGKILL", str(tmp_path), number=50, times=times),)
    with supervisor(
        Write(delay_s=(0.0, 0.002)), post=Remember(fate), workers=(3, 2, 1), ordered=True
    ) as subject:
        outcomes, statistics = outcomes_of(subject, entries(range(120)))

    assert statistics.stages["post"].restarts == min(times, 2)
    assert [o.index for o in outcomes if isinstance(o, Failure)] == [50] * (times > 1)
    pairs = chain_of(outcomes)
    numbers = [number for number, _ in pairs]
    # A new process knows of nothing before; all else is read right after what is before it.
    fresh = [at for at, (_, before) in enumerate(pairs) if before == -1]
    assert len(fresh) <= 1 + statistics.stages["post"].restarts
    assert all(before == numbers[at - 1] for at, (_, before) in enumerate(pairs) if at not in fresh)
