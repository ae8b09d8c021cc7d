"""Several supervisors at once in one process, each in a thread of its own, and one fork server."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from gepipe.errors import Interrupted, StageError
from gepipe.io.failures import Failure
from gepipe.runtime.process import ChildProcess
from gepipe.runtime.supervisor import Supervisor
from tests.support import (
    Fate,
    Infer,
    Read,
    Write,
    entries,
    is_alive,
    leave_soon,
    listed,
    supervisor,
    undisturbed,
    wait_until,
    workers_of,
)


class Running:
    """A supervisor that runs over many items in a thread.

    Attributes:
        outcomes: What was emitted so far.
        error: What the run raised.
    """

    def __init__(self, subject: Supervisor, count: int, **more) -> None:
        self.subject = subject
        self.outcomes: list = []
        self.error: BaseException | None = None
        self._run = lambda: subject.run(listed(entries(range(count)), **more), self.outcomes.extend)
        self.thread = threading.Thread(target=self._work)
        self.thread.start()

    def _work(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.error = error

    def pids(self) -> list[int]:
        return workers_of(self.subject)

    def end(self) -> BaseException | None:
        self.thread.join(60)
        assert not self.thread.is_alive()
        self.subject.close()
        return self.error


@pytest.fixture
def quick_turns() -> Iterator[None]:
    """Let threads get in each other's way as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("quick_turns")
def test_all_threads_that_look_at_a_process_see_the_same_end() -> None:
    for _ in range(3):
        child = ChildProcess("brief", leave_soon, (3,))
        seen: list[int | None] = []

        def look(poll: Callable[[], int | None], seen=seen) -> None:
            while (status := poll()) is None:
                pass
            seen.append(status)

        threads = [
            threading.Thread(target=look, args=(child.process._popen.poll,)) for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert seen == [3] * 6
        assert child.reap() == "exited with status 3"


@pytest.mark.usefixtures("quick_turns")
def test_deaths_in_several_runs_at_once_are_each_told_apart(tmp_path) -> None:
    runs = []
    for name in "abc":
        (tmp_path / name).mkdir()
        fates = tuple(
            Fate(role, "mid-write", "SIGKILL", str(tmp_path / name), number)
            for number, role in enumerate(["pre", "infer", "post"] * 4, start=5)
        )
        subject = supervisor(Write(fates), Infer(fates), Read(fates), workers=(2, 1, 1))
        runs.append(Running(subject, 60))

    for run in runs:
        assert run.end() is None
        assert run.outcomes == undisturbed(range(60))
        stages = run.subject.statistics().stages
        assert sum(stage.restarts for stage in stages.values()) == 12


def test_error_in_one_run_leaves_the_others_alone() -> None:
    good = Running(supervisor(Write(delay_s=0.002)), 200)
    bad = Running(supervisor(Write(faults={9: ("broken", "")})), 100, max_failures=0)

    assert isinstance(bad.end(), StageError)
    assert good.end() is None
    assert good.outcomes == undisturbed(range(200))
    assert [o.index for o in bad.outcomes] == list(range(10))
    assert isinstance(bad.outcomes[-1], Failure)


def test_stop_of_one_run_leaves_the_others_alone_and_no_process() -> None:
    runs = [Running(supervisor(Write(delay_s=0.002)), count) for count in (200, 100_000)]
    wait_until(lambda: all(run.outcomes for run in runs))
    pids = [pid for run in runs for pid in run.pids()]

    runs[1].subject.request_stop()

    assert isinstance(runs[1].end(), Interrupted)
    assert runs[0].end() is None
    assert runs[0].outcomes == undisturbed(range(200))
    wait_until(lambda: not any(map(is_alive, pids)))


def test_interrupt_reaches_runs_in_other_threads_and_not_their_workers() -> None:
    runs = [Running(supervisor(Write(delay_s=0.002)), 100_000) for _ in range(3)]
    wait_until(lambda: all(run.outcomes for run in runs))
    pids = [pid for run in runs for pid in run.pids()]

    def stop(*_) -> None:
        for run in runs:
            run.subject.request_stop()

    before = signal.signal(signal.SIGINT, stop)
    try:
        for pid in pids:
            os.kill(pid, signal.SIGINT)  # as a terminal sends it to all
        os.kill(os.getpid(), signal.SIGINT)
        errors = [run.end() for run in runs]
    finally:
        signal.signal(signal.SIGINT, before)

    assert all(isinstance(error, Interrupted) for error in errors)
    assert all(run.subject.statistics().stages["pre"].restarts == 0 for run in runs)
    for run in runs:
        assert [o.index for o in run.outcomes] == list(range(len(run.outcomes)))
    wait_until(lambda: not any(map(is_alive, pids)))
