"""Real workers with tiny stages, through the supervisor."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from gepipe.errors import (
    BackendError,
    ClosedError,
    Interrupted,
    StageError,
    WorkerStartError,
)
from gepipe.io.failures import Failure
from gepipe.io.source import Entry
from gepipe.runtime import watch
from gepipe.runtime.options import RunOptions
from tests.support import (
    Fate,
    Infer,
    Read,
    Write,
    entries,
    is_alive,
    listed,
    outcomes_of,
    pause,
    record,
    server_ready,
    streamed,
    supervisor,
    undisturbed,
    wait_until,
    workers_of,
)


def failures(outcomes) -> list[tuple[int, str, str]]:
    return [(f.index, f.stage, f.kind) for f in outcomes if isinstance(f, Failure)]


@pytest.mark.parametrize("depth", [1, 3])
def test_a_thousand_items_with_random_delays_leave_in_order(depth) -> None:
    delays = (0.0, 0.002)
    subject = supervisor(
        Write(delay_s=delays), Infer(), Read(delay_s=delays), workers=(3, 2, 2), depth=depth
    )
    with subject:
        outcomes, statistics = outcomes_of(subject, entries(range(1000)))

    assert outcomes == undisturbed(range(1000))
    assert (statistics.done, statistics.failed) == (1000, 0)
    assert statistics.slots_used == (0, 0)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 9])
def test_runs_of_any_length_end(count) -> None:
    with supervisor(workers=(2, 2, 2)) as subject:
        assert outcomes_of(subject, entries(range(count)))[0] == undisturbed(range(count))


def test_engine_that_takes_several_batches_at_once_is_given_them() -> None:
    with supervisor(infer=Infer(in_flight=2, delay_s=0.002), workers=(2, 1, 2)) as subject:
        assert outcomes_of(subject, entries(range(60)))[0] == undisturbed(range(60))


def test_one_supervisor_serves_run_after_run_with_the_same_workers() -> None:
    with supervisor(workers=(2, 1, 1)) as subject:
        first, _ = outcomes_of(subject, entries(range(10)))
        pids = workers_of(subject)
        second, statistics = outcomes_of(subject, entries(range(100, 131)))

        assert workers_of(subject) == pids
    assert first == undisturbed(range(10))
    assert second == undisturbed(range(100, 131))
    assert statistics.done == 31


def test_worker_that_died_between_two_runs_is_replaced() -> None:
    with supervisor() as subject:
        outcomes_of(subject, entries(range(10)))
        for pid in workers_of(subject):
            os.kill(pid, 9)
            wait_until(lambda pid=pid: not is_alive(pid))

        assert outcomes_of(subject, entries(range(10)))[0] == undisturbed(range(10))


def test_slow_consumer_holds_up_the_source_instead_of_filling_memory() -> None:
    taken: list[int] = []
    seen: list[int] = []

    def source():
        for number in range(300):
            taken.append(number)
            yield entries([number])[0]

    def slow(outcomes) -> None:
        pause(0.002)
        seen.append(len(taken) - outcomes[-1].index)

    with supervisor(workers=(2, 1, 1)) as subject:
        streamed(subject, source(), slow)

    assert len(taken) == 300
    assert max(seen) <= (2 * 2 + 3) * 4 + 8 + 1


def test_slow_post_holds_up_the_source() -> None:
    taken: list[int] = []
    ahead: list[int] = []

    def source():
        for number in range(120):
            taken.append(number)
            yield entries([number])[0]

    with supervisor(post=Read(delay_s=0.004)) as subject:
        streamed(subject, source(), lambda out: ahead.append(len(taken) - out[-1].index))

    assert max(ahead) <= (2 * 2 + 3) * 4 + 8 + 1


def test_part_filled_batch_leaves_when_the_source_pauses() -> None:
    given = threading.Semaphore(0)
    outcomes: list = []

    def source():
        for number in range(6):
            yield entries([number])[0]
            if number in (1, 4):  # batches of four, and the source waits for these results
                assert given.acquire(timeout=60)

    def emit(out) -> None:
        outcomes.extend(out)
        if len(outcomes) in (2, 5):
            given.release()

    with supervisor(options=RunOptions(max_wait_s=0.01)) as subject:
        streamed(subject, source(), emit)

    assert outcomes == undisturbed(range(6))


def test_error_of_the_source_reaches_the_caller() -> None:
    def source():
        yield from entries(range(5))
        raise KeyError("the camera is gone")

    outcomes = []
    with supervisor() as subject, pytest.raises(KeyError, match="camera"):
        streamed(subject, source(), outcomes.extend)

    assert outcomes == undisturbed(range(5))  # what it gave before arrives first


def test_stop_request_from_a_thread_ends_a_run_that_waits() -> None:
    hold = threading.Event()

    def source():
        yield from entries(range(2))
        hold.wait(600)

    with supervisor() as subject:
        threading.Timer(0.3, subject.request_stop).start()
        with pytest.raises(Interrupted):
            streamed(subject, source(), lambda _: None)
        hold.set()
    with pytest.raises(ClosedError):
        subject.run(listed([]), lambda _: None)


def test_three_bad_items_of_a_thousand_are_set_aside() -> None:
    faults = {n: ("truncated", f"item {n} is broken") for n in (3, 500, 999)}
    with supervisor(Write(faults=faults), workers=(2, 1, 1)) as subject:
        outcomes, statistics = outcomes_of(subject, entries(range(1000)))

    assert failures(outcomes) == [(n, "stage pre", "truncated") for n in (3, 500, 999)]
    assert [o for o in outcomes if not isinstance(o, Failure)] == [
        o for o in undisturbed(range(1000)) if o[0] not in faults
    ]
    assert (statistics.done, statistics.failed) == (997, 3)


def test_whole_batches_of_bad_items_pass() -> None:
    faults = dict.fromkeys(range(4, 20), ("empty", ""))
    with supervisor(Write(faults=faults)) as subject:
        outcomes, _ = outcomes_of(subject, entries(range(30)))

    assert [f[0] for f in failures(outcomes)] == list(range(4, 20))
    assert [o.index for o in outcomes] == list(range(30))


@pytest.mark.parametrize("allowed", [0, 2])
def test_run_stops_at_the_failure_that_is_too_many_with_an_exact_prefix(allowed) -> None:
    faults = dict.fromkeys((5, 17, 18, 40), ("empty", "nothing in it"))
    outcomes: list = []
    with (
        supervisor(Write(faults=faults), workers=(2, 1, 2)) as subject,
        pytest.raises(StageError, match=r"item \d+: stage pre: nothing in it; stopped"),
    ):
        subject.run(listed(entries(range(60)), max_failures=allowed), outcomes.extend)

    last = sorted(faults)[allowed]
    assert [o.index for o in outcomes] == list(range(last + 1))
    assert len(failures(outcomes)) == allowed + 1


def test_execution_that_fails_is_halved_until_only_the_culprit_is_left() -> None:
    with supervisor(infer=Infer(fail_on=6)) as subject:
        outcomes, _ = outcomes_of(subject, entries(range(12)))

    assert failures(outcomes) == [(6, "stage infer", "RuntimeError")]
    assert "refuses 6" in outcomes[6].error
    assert [o for o in outcomes if o not in outcomes[6:7]] == [
        o for o in undisturbed(range(12)) if o[0] != 6
    ]


class Always(Infer):
    def _execute(self, _x, _y) -> None:
        raise RuntimeError("out of device memory")


def test_device_on_which_everything_fails_ends_the_run() -> None:
    with supervisor(infer=Always()) as subject, pytest.raises(BackendError, match="device memory"):
        outcomes_of(subject, entries(range(2000)))


class Exits(Write):
    error: BaseException = SystemExit(3)

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def work(self, number: int) -> None:
        if number == 2:
            raise self.error


class OddError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), MemoryError(), GeneratorExit(), OddError()]
)
def test_whatever_user_code_raises_is_the_items_failure(error) -> None:
    with supervisor(Exits(error)) as subject:
        pid_before = None
        outcomes, statistics = outcomes_of(subject, entries(range(6)))

    assert failures(outcomes) == [(2, "stage pre", type(error).__name__)]
    assert statistics.stages["pre"].restarts == 0
    assert pid_before is None


class Text(Read):
    def read(self, rows, meta):
        return "text" if b"3" in meta else super().read(rows, meta)


def test_record_that_is_no_bytes_fails_its_item_only() -> None:
    with supervisor(post=Text()) as subject:
        outcomes, statistics = outcomes_of(subject, entries(range(6)))

    assert failures(outcomes) == [(3, "stage post", "TypeError")]
    assert statistics.stages["post"].restarts == 0


def test_large_payloads_and_large_records_pass_the_channel() -> None:
    with supervisor(post=Read(size=5_000_000), batch=2, workers=(2, 1, 2)) as subject:
        outcomes, _ = outcomes_of(subject, entries(range(6), size=10_000_000))

    assert [o.payload for o in outcomes] == [record(n) + bytes(5_000_000) for n in range(6)]


class Prints(Write):
    def work(self, number: int) -> None:
        print("user text", number, flush=True)  # noqa: T201


def test_user_code_may_print() -> None:
    with supervisor(Prints()) as subject:
        assert outcomes_of(subject, entries(range(4)))[0] == undisturbed(range(4))


class Keeps(Write):
    """Keeps views of rows alive, as user code does by accident."""

    kept: list

    def write(self, payload, rows):
        self.__dict__.setdefault("kept", []).append(rows["x"][:3])
        if payload[0] == 2:
            raise ValueError("the real error")
        return super().write(payload, rows)


def test_views_that_user_code_keeps_do_not_hide_its_error() -> None:
    with supervisor(Keeps()) as subject:
        outcomes, _ = outcomes_of(subject, entries(range(5)))

    assert failures(outcomes) == [(2, "stage pre", "ValueError")]
    assert "the real error" in outcomes[2].error


@pytest.mark.parametrize("role", ["pre", "infer", "post"])
def test_set_up_that_raises_ends_the_run_with_its_cause(tmp_path, role) -> None:
    fate = (Fate(role, "setup", "raise", str(tmp_path), times=9),)
    bodies = [Write(fate), Infer(fate), Read(fate)]
    with (
        supervisor(*bodies) as subject,
        pytest.raises(WorkerStartError, match="on purpose") as caught,
    ):
        outcomes_of(subject, entries(range(4)))

    assert f"stage {role}" in str(caught.value)
    assert "in strike" in str(caught.value), "no traceback"


@pytest.mark.parametrize(("way", "cause"), [("exit 0", "status 0"), ("SIGSEGV", "SIGSEGV")])
def test_set_up_that_ends_the_process_is_tried_thrice(tmp_path, way, cause) -> None:
    fate = (Fate("pre", "setup", way, str(tmp_path), times=9),)
    with (
        supervisor(Write(fate)) as subject,
        pytest.raises(WorkerStartError, match=f"{cause} during set-up, 3 times"),
    ):
        outcomes_of(subject, entries(range(4)))

    assert len(list(tmp_path.iterdir())) == 3


def test_set_up_that_never_ends_fails_within_its_limit(tmp_path) -> None:
    fate = (Fate("infer", "setup", "hang", str(tmp_path)),)
    options = RunOptions(start_timeout_s=2.5, grace_s=0.2)
    server_ready()
    with (
        supervisor(infer=Infer(fate), options=options) as subject,
        pytest.raises(WorkerStartError, match=r"stage infer: .* within 2\.5 s"),
    ):
        outcomes_of(subject, entries(range(4)))


def test_worker_that_dies_while_it_waits_for_the_model_is_replaced(tmp_path) -> None:
    """The moment between `ready` and the shared memory: its death and the model come together."""
    (tmp_path / "infer-setup-wait").touch()

    with supervisor(infer=SlowModel(str(tmp_path))) as subject:
        outcomes: list = []

        def kill() -> None:
            wait_until(lambda: len(subject._workforce.waiting) == 2)
            for pid in workers_of(subject, "pre") + workers_of(subject, "post"):
                os.kill(pid, 9)
            (tmp_path / "go").touch()

        thread = threading.Thread(target=kill)
        thread.start()
        subject.run(listed(entries(range(8))), outcomes.extend)
        thread.join()

    assert outcomes == undisturbed(range(8))


class SlowModel(Infer):
    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def setup(self):
        wait_until(lambda: Path(self.folder, "go").exists())
        return super().setup()


def test_worker_that_is_dead_when_it_is_attached_is_replaced(monkeypatch) -> None:
    with supervisor() as subject:
        workforce, first = subject._workforce, []
        attach = workforce.attach

        def killed(worker, *links) -> None:
            if worker.role == "pre" and not first:
                first.append(worker)
                process = workforce._processes[worker].process
                process.kill()
                wait_until(lambda: not is_alive(process.pid))
            attach(worker, *links)

        monkeypatch.setattr(workforce, "attach", killed)

        assert outcomes_of(subject, entries(range(8)))[0] == undisturbed(range(8))
    assert first


def test_item_that_takes_too_long_is_tried_twice_and_set_aside(tmp_path) -> None:
    fate = (Fate("pre", "mid-write", "hang", str(tmp_path), number=5, times=9),)
    with supervisor(Write(fate), workers=(2, 1, 1), timeout_s=1.5) as subject:
        outcomes, _ = outcomes_of(subject, entries(range(12)))

    assert failures(outcomes) == [(5, "stage pre", "timeout")]
    assert "limit of 1.5 s" in outcomes[5].error
    assert len(list(tmp_path.iterdir())) == 2


def test_limit_is_for_one_item_and_not_for_a_ticket_of_many() -> None:
    with supervisor(Write(delay_s=0.06), timeout_s=1.5, batch=32) as subject:
        assert outcomes_of(subject, entries(range(32)))[0] == undisturbed(range(32))


def test_stopped_worker_does_not_hold_up_the_run(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(watch, "_UNBEGUN_S", 1.5)
    fate = (Fate("pre", "mid-write", "stop", str(tmp_path), number=5),)
    with supervisor(Write(fate), workers=(2, 1, 1), timeout_s=1.5) as subject:
        outcomes, statistics = outcomes_of(subject, entries(range(30)))

    assert outcomes == undisturbed(range(30))
    assert statistics.stages["pre"].restarts == 1


def test_worker_stopped_while_idle_does_not_hold_up_the_run(monkeypatch) -> None:
    monkeypatch.setattr(watch, "_UNBEGUN_S", 1.0)
    with supervisor(timeout_s=1.0) as subject:
        outcomes_of(subject, entries(range(4)))
        (pid,) = workers_of(subject, "post")
        os.kill(pid, 19)

        outcomes, _ = outcomes_of(subject, entries(range(9)))

    assert outcomes == undisturbed(range(9))


def test_run_works_in_a_thread_and_two_at_a_time() -> None:
    results: dict[int, list] = {}

    def work(at: int) -> None:
        with supervisor(workers=(2, 1, 1)) as subject:
            results[at] = outcomes_of(subject, entries(range(40)))[0]

    main, before = sys.modules["__main__"], dict(os.environ)
    threads = [threading.Thread(target=partial(work, at)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == dict.fromkeys(range(4), undisturbed(range(40)))
    assert sys.modules["__main__"] is main
    assert dict(os.environ) == before


def test_workers_have_one_thread_for_each_library_and_the_callers_variables(monkeypatch) -> None:
    monkeypatch.setenv("GEPIPE_TEST", "yes")
    options = RunOptions(environ={"GEPIPE_TEST": "yes"})
    with supervisor(post=Environment(), options=options) as subject:
        outcomes, _ = outcomes_of(subject, entries(range(1)))

    assert outcomes[0].payload == b"1 yes"
    assert "OMP_NUM_THREADS" not in os.environ or os.environ["OMP_NUM_THREADS"] != "broken"


class Environment(Read):
    def read(self, _rows, _meta) -> bytes:
        text = f"{os.environ['OMP_NUM_THREADS']} {os.environ['GEPIPE_TEST']}"
        return text.encode()


def test_names_that_are_not_utf8_travel_unharmed() -> None:
    odd = os.fsdecode(b"/photos/\xff\xfe.jpg")
    with supervisor() as subject:
        outcomes, _ = outcomes_of(subject, [Entry(odd, entries([1])[0].payload)])

    assert outcomes[0].source == odd


def test_consumer_that_holds_up_the_run_costs_no_worker_its_life(monkeypatch) -> None:
    monkeypatch.setattr(watch, "_UNBEGUN_S", 0.8)
    monkeypatch.setattr(watch, "_OVERSLEPT_S", 0.2)
    outcomes: list = []

    def slow(portion) -> None:
        outcomes.extend(portion)
        pause(2 if len(outcomes) < 6 else 0)

    with supervisor(workers=(2, 1, 1), timeout_s=0.8) as subject:
        statistics = subject.run(listed(entries(range(40))), slow)

    assert outcomes == undisturbed(range(40))
    assert sum(stage.restarts for stage in statistics.stages.values()) == 0


class Forking(Write):
    """Forks on one item, and its child goes on like the worker itself."""

    def write(self, payload, rows) -> bytes:
        meta = super().write(payload, rows)
        if meta == b"meta of 6" and os.fork() == 0:
            Path(os.environ["GEPIPE_TEST"], str(os.getpid())).touch()
        return meta


class ForkingAtSetup(Read):
    def setup(self) -> None:
        with suppress(FileExistsError):
            os.close(os.open(os.environ["GEPIPE_TEST"], os.O_CREAT | os.O_EXCL))
            os.fork()


def test_child_that_an_operator_forked_ends_where_it_returns(tmp_path) -> None:
    options = RunOptions(environ={"GEPIPE_TEST": str(tmp_path)})
    with supervisor(Forking(), workers=(2, 1, 1), options=options) as subject:
        outcomes, statistics = outcomes_of(subject, entries(range(30)))
        (child,) = wait_until(lambda: list(tmp_path.iterdir()))
        wait_until(lambda: not is_alive(int(child.name)))

    assert outcomes == undisturbed(range(30))
    assert statistics.stages["pre"].restarts == 0


def test_worker_that_answers_what_it_was_not_asked_is_replaced(tmp_path, caplog) -> None:
    options = RunOptions(environ={"GEPIPE_TEST": str(tmp_path / "once")})
    with supervisor(post=Answering(), options=options) as subject:
        outcomes, statistics = outcomes_of(subject, entries(range(9)))

    assert outcomes == undisturbed(range(9))
    assert statistics.stages["post"].restarts == 1
    assert "answered ticket -1, which it does not hold" in caplog.text


class Answering(Read):
    def read(self, rows, meta) -> bytes:
        with suppress(FileExistsError):
            os.close(os.open(os.environ["GEPIPE_TEST"], os.O_CREAT | os.O_EXCL))
            sys._getframe(1).f_locals["post"].send((-1, 0, []))
        return super().read(rows, meta)


def test_worker_that_is_ready_twice_is_replaced(tmp_path) -> None:
    options = RunOptions(environ={"GEPIPE_TEST": str(tmp_path / "once")})
    with supervisor(post=ForkingAtSetup(), options=options) as subject:
        outcomes, _ = outcomes_of(subject, entries(range(9)))

    assert outcomes == undisturbed(range(9))


def test_worker_that_sends_what_is_no_message_is_replaced(tmp_path, caplog) -> None:
    options = RunOptions(environ={"GEPIPE_TEST": str(tmp_path / "once")})
    with supervisor(post=Garbling(), options=options) as subject:
        outcomes, statistics = outcomes_of(subject, entries(range(9)))

    assert outcomes == undisturbed(range(9))
    assert statistics.stages["post"].restarts == 1
    assert "no message" in caplog.text


class Garbling(Read):
    def read(self, rows, meta) -> bytes:
        with suppress(FileExistsError):
            os.close(os.open(os.environ["GEPIPE_TEST"], os.O_CREAT | os.O_EXCL))
            for fd in os.listdir("/proc/self/fd"):  # noqa: PTH208
                with suppress(OSError):
                    if Path(f"/proc/self/fd/{fd}").readlink().name.startswith("socket:"):
                        os.write(int(fd), b"\4\0\0\0what")
        return super().read(rows, meta)


def test_death_of_the_fork_server_is_no_items_fault(caplog) -> None:
    from multiprocess import forkserver

    with supervisor(Write(delay_s=0.01), Infer(delay_s=0.01), Read(delay_s=0.01)) as subject:
        outcomes: list = []
        killed: set[int] = set()

        def emit(portion) -> None:
            outcomes.extend(portion)
            server = forkserver._forkserver._forkserver_pid
            if len(killed) < 4 and server not in killed:
                killed.add(server)
                os.kill(server, 9)

        subject.run(listed(entries(range(60))), emit)

    assert outcomes == undisturbed(range(60))
    assert len(killed) == 4
    assert "the fork server, which was killed" in caplog.text
    assert "status 255" not in caplog.text


@pytest.mark.parametrize("role", ["pre", "infer", "post"])
def test_death_of_the_fork_server_is_no_fault_of_who_is_set_up(tmp_path, role) -> None:
    body = {"pre": Write, "infer": Infer, "post": Read}[role]
    fate = Fate(role, "setup", "with the server", str(tmp_path), times=5)

    with supervisor(**{role: body(fates=(fate,))}) as subject:
        outcomes, _ = outcomes_of(subject, entries(range(9)))

    assert outcomes == undisturbed(range(9))
    assert len(list(tmp_path.iterdir())) == 5


def test_fork_server_that_dies_whenever_a_worker_is_set_up_ends_the_run(tmp_path) -> None:
    fate = Fate("infer", "setup", "with the server", str(tmp_path), times=99)

    said = r"the fork server, .* during set-up, 20 times"
    with (
        supervisor(infer=Infer(fates=(fate,))) as subject,
        pytest.raises(WorkerStartError, match=said),
    ):
        outcomes_of(subject, entries(range(9)))


def test_worker_that_exits_with_255_is_not_the_fork_servers_death() -> None:
    with supervisor(post=Exiting()) as subject:
        outcomes, _ = outcomes_of(subject, entries(range(9)))

    assert failures(outcomes) == [(4, "stage post", "crash")]
    assert "exited with status 255" in outcomes[4].error


class Exiting(Read):
    def read(self, rows, meta) -> bytes:
        if meta == b"meta of 4":
            os._exit(255)
        return super().read(rows, meta)


def test_run_ends_although_the_fork_server_is_stopped() -> None:
    from multiprocess import forkserver

    began = time.monotonic()
    with supervisor(Write(delay_s=0.01)) as subject:

        def emit(_: object) -> None:
            os.kill(forkserver._forkserver._forkserver_pid, signal.SIGSTOP)
            subject.request_stop()

        with pytest.raises(Interrupted):
            subject.run(listed(entries(range(60))), emit)

    assert time.monotonic() - began < 60


def test_fork_server_that_was_stopped_goes_on_when_it_is_needed() -> None:
    from multiprocess import forkserver

    with supervisor() as subject:
        outcomes_of(subject, entries(range(4)))
        os.kill(forkserver._forkserver._forkserver_pid, 19)
        (pid,) = workers_of(subject, "post")
        os.kill(pid, 9)
        timer = threading.Timer(60, lambda: os.kill(forkserver._forkserver._forkserver_pid, 18))
        timer.start()

        outcomes, _ = outcomes_of(subject, entries(range(9)))

        assert not timer.finished.is_set(), "it went on by itself"
        timer.cancel()
        timer.join()
    assert outcomes == undisturbed(range(9))
