"""Workers die, hang and fail at every moment: right results, right blame, no orphan, in time.

Nothing here is random but the last tests, whose seeds are in their names.
"""

from __future__ import annotations

import math
import os
import random
import signal
import threading
from dataclasses import replace

import pytest

from gepipe.errors import Interrupted, WorkerStartError
from gepipe.io.failures import Failure
from gepipe.runtime.options import RunOptions
from tests.support import (
    ROLES,
    Fate,
    Infer,
    Read,
    Write,
    entries,
    is_alive,
    listed,
    outcomes_of,
    record,
    server_ready,
    streamed,
    supervisor,
    undisturbed,
    wait_until,
    workers_of,
)

pytestmark = pytest.mark.chaos

DEATHS = ["SIGKILL", "SIGSEGV", "SIGABRT", "exit 0"]
RAISES = {"raise": "ValueError", "memory": "MemoryError", "rlimit": "MemoryError"}
COUNT, VICTIM = 18, 6
OPTIONS = RunOptions(start_timeout_s=60.0, grace_s=0.3)
#: Limits are short where something hangs only: who is innocent keeps them on a busy machine, too.
TIMEOUT_S, START_TIMEOUT_S = 1.5, 3.0
HANGS = ("hang", "stop")


def subject_of(fate: Fate | None, *, workers=(2, 1, 1), options=OPTIONS, **more):
    fates = (fate,) if fate else ()
    # What happens between two items must happen before the last one.
    delay_s = 0.003 if fate and fate.moment == "between" else 0.0
    bodies = (body(fates, delay_s) for body in (Write, Infer, Read))
    more.setdefault("timeout_s", TIMEOUT_S if fate and fate.way in HANGS else math.inf)
    return supervisor(*bodies, workers=workers, options=options, **more)


def run(fate: Fate | None, **more):
    """Return the outcomes of a run with a fate, and how many workers were replaced."""
    with subject_of(fate, **more) as subject:
        outcomes, statistics = outcomes_of(subject, entries(range(COUNT)))
        pids = workers_of(subject)
    assert not any(map(is_alive, pids))
    return outcomes, sum(stage.restarts for stage in statistics.stages.values())


def struck(folder) -> int:
    return len(list(folder.iterdir()))


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("way", DEATHS)
@pytest.mark.parametrize("moment", ["start", "setup"])
def test_worker_that_dies_before_it_is_ready_is_replaced(tmp_path, role, moment, way) -> None:
    outcomes, _ = run(Fate(role, moment, way, str(tmp_path)))

    assert outcomes == undisturbed(range(COUNT))
    assert struck(tmp_path) == 1


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("way", [*RAISES, "hang", "stop"])
@pytest.mark.parametrize("moment", ["start", "setup"])
def test_worker_that_cannot_become_ready_ends_the_run_in_time(tmp_path, role, moment, way) -> None:
    options = OPTIONS
    if way in HANGS:
        server_ready()
        options = replace(OPTIONS, start_timeout_s=START_TIMEOUT_S)
    with (
        subject_of(Fate(role, moment, way, str(tmp_path), times=9), options=options) as subject,
        pytest.raises(WorkerStartError, match=f"stage {role}"),
    ):
        outcomes_of(subject, entries(range(COUNT)))


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("way", [*DEATHS, "hang"])
@pytest.mark.parametrize("moment", ["mid-write", "between"])
def test_worker_that_dies_once_costs_no_result(tmp_path, role, moment, way) -> None:
    if (moment, way) == ("between", "hang"):
        pytest.skip("a thread that hangs beside the stage is no fault")
    outcomes, _ = run(Fate(role, moment, way, str(tmp_path), VICTIM))

    assert outcomes == undisturbed(range(COUNT))
    assert struck(tmp_path) == 1


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("way", RAISES)
def test_exception_is_the_items_own_and_a_model_gets_a_second_try(tmp_path, role, way) -> None:
    outcomes, replaced = run(Fate(role, "mid-write", way, str(tmp_path), VICTIM))

    expected = list(undisturbed(range(COUNT)))
    if role != "infer":
        failure = outcomes[VICTIM]
        assert isinstance(failure, Failure)
        assert (failure.index, failure.kind) == (VICTIM, RAISES[way])
        assert failure.stage == f"stage {role}"
        expected[VICTIM] = failure
    assert outcomes == expected
    assert replaced == 0


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("way", [*DEATHS, "hang", *RAISES])
def test_only_the_item_that_kills_every_time_is_set_aside(tmp_path, role, way) -> None:
    outcomes, _ = run(Fate(role, "mid-write", way, str(tmp_path), VICTIM, times=99))

    failed = [each for each in outcomes if isinstance(each, Failure)]
    kind = RAISES.get(way, "timeout" if way == "hang" else "crash")
    if (role, way) == ("infer", "hang"):  # the limit is for an execution: its items fail together
        assert [each.index for each in failed] == [4, 5, 6, 7]
    else:
        assert [each.index for each in failed] == [VICTIM]
    assert {(each.stage, each.kind) for each in failed} == {(f"stage {role}", kind)}
    assert way not in DEATHS[:3] or way in failed[0].error
    bad = {each.index for each in failed}
    assert [each for each in outcomes if not isinstance(each, Failure)] == [
        each for each in undisturbed(range(COUNT)) if each[0] not in bad
    ]


@pytest.mark.parametrize("way", DEATHS)
def test_two_devices_share_the_blame_of_a_killer_alone(tmp_path, way) -> None:
    fate = Fate("infer", "mid-write", way, str(tmp_path), VICTIM, times=99)
    outcomes, _ = run(fate, workers=(2, 2, 1))

    assert [each.index for each in outcomes if isinstance(each, Failure)] == [VICTIM]
    assert len(outcomes) == COUNT


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_worker_that_dies_while_idle_is_replaced(role, number) -> None:
    more = threading.Event()

    def source():
        yield from entries(range(5))
        assert more.wait(60)
        yield from entries(range(5, COUNT))

    outcomes: list = []
    with subject_of(None) as subject:
        restarts = []

        def kill() -> None:
            wait_until(lambda: len(outcomes) == 5)
            before = workers_of(subject, role)
            for pid in before:
                os.kill(pid, number)
            restarts.append(wait_until(lambda: not set(workers_of(subject, role)) & set(before)))
            more.set()

        thread = threading.Thread(target=kill)
        thread.start()
        streamed(subject, source(), outcomes.extend)
        thread.join()

    assert outcomes == undisturbed(range(COUNT))
    assert restarts


@pytest.mark.parametrize("way", [*DEATHS, *RAISES, "hang", "stop"])
def test_model_that_does_not_close_well_ends_all_the_same(tmp_path, way) -> None:
    # Who ends by itself may take its time; who does not is killed in the end.
    options = replace(OPTIONS, grace_s=2.0 if way in HANGS else 60.0)
    outcomes, _ = run(Fate("infer", "stop", way, str(tmp_path)), options=options)

    assert outcomes == undisturbed(range(COUNT))
    assert struck(tmp_path) == 1


@pytest.mark.parametrize("role", ROLES)
def test_run_that_is_closed_while_a_stage_hangs_leaves_nobody(tmp_path, role) -> None:
    fate = Fate(role, "mid-write", "hang", str(tmp_path), VICTIM, times=99)
    subject = subject_of(fate, timeout_s=math.inf)
    stopper = threading.Thread(
        target=lambda: (wait_until(lambda: struck(tmp_path)), subject.request_stop())
    )
    stopper.start()
    with subject, pytest.raises(Interrupted, match="stopped on request"):
        outcomes_of(subject, entries(range(COUNT)))
    stopper.join()


def test_death_of_the_fork_server_is_survived() -> None:
    from multiprocess import forkserver

    outcomes: list = []
    with supervisor(Write(delay_s=0.004), workers=(2, 1, 1), options=OPTIONS) as subject:
        for round_ in range(3):
            outcomes.clear()
            old = forkserver._forkserver._forkserver_pid

            def kill(old=old) -> None:
                wait_until(lambda: len(outcomes) >= 8)
                os.kill(old, signal.SIGKILL)

            thread = threading.Thread(target=kill)
            thread.start()
            subject.run(listed(entries(range(60))), outcomes.extend)
            thread.join()

            assert outcomes == undisturbed(range(60)), round_
            wait_until(lambda old=old: not is_alive(old))


@pytest.mark.parametrize("seed", range(6))
def test_random_kills_lose_and_double_nothing(seed) -> None:
    rng = random.Random(seed)
    stop = threading.Event()
    killed = 0
    delays = (0.0, 0.004)
    with supervisor(
        Write(delay_s=delays), Infer(delay_s=0.002, in_flight=1 + seed % 2), Read(delay_s=delays),
        workers=(2, 1 + seed % 2, 2), batch=1 + seed, options=OPTIONS,
    ) as subject:  # fmt: skip

        def kill() -> None:
            nonlocal killed
            seen = 0
            while not stop.wait(rng.uniform(0.01, 0.08)):
                if len(outcomes) - seen < 4:
                    continue  # a slow machine is to get on, too
                seen = len(outcomes)
                # Who dies thrice while it is set up is given up, as it should be.
                if pids := workers_of(subject, attached=True):
                    with_signal = rng.choice([signal.SIGKILL, signal.SIGSEGV])
                    try:
                        os.kill(rng.choice(pids), with_signal)
                    except ProcessLookupError:
                        continue
                    killed += 1

        thread = threading.Thread(target=kill)
        outcomes: list = []

        def emit(out) -> None:
            if not outcomes:
                thread.start()
            outcomes.extend(out)

        try:
            subject.run(listed(entries(range(250))), emit)
        finally:
            stop.set()
            thread.join()

    assert killed
    assert [each.index for each in outcomes] == list(range(250))
    for each in outcomes:  # who was hit twice by chance is a culprit by the rule
        if isinstance(each, Failure):
            assert each.kind == "crash"
        else:
            assert each.payload == record(each.index)
    assert sum(isinstance(each, Failure) for each in outcomes) < 25
