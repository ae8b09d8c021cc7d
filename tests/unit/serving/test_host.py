from __future__ import annotations

import os
import time

import numpy as np
import pytest

from gepipe.errors import BackendError, ClosedError, GepipeError
from gepipe.pipeline.crews import pickled, worker_environment
from gepipe.runtime.memory import SlotLayout
from gepipe.serving import host as host_module
from gepipe.serving.host import ExecutionError, ModelHost
from tests.support import INPUT, OUTPUT, Fate, Infer, is_alive, pause, wait_until

ROWS = 4


@pytest.fixture
def opened():
    """Return a function that opens a host, with its slot filled; all are closed at the end."""
    hosts = []

    def make(body: Infer, limit_s: float = 30.0) -> ModelHost:
        host = ModelHost("model", pickled(body, "model"), worker_environment())
        hosts.append(host)
        host.lay_out(SlotLayout.of((INPUT,), ROWS), SlotLayout.of((OUTPUT,), ROWS), limit_s)
        host.inputs["x"][:] = np.arange(ROWS)[:, None]
        return host

    yield make
    for host in hosts:
        host.close()


def right(host: ModelHost, first: int = 0, last: int = ROWS) -> bool:
    expected = 2 * np.arange(first, last)[:, None] + 1
    return bool((host.outputs["y"][first:last] == expected).all())


def pid_of(host: ModelHost) -> int:
    assert host._session is not None
    return host._session._process.process.pid


def test_rows_are_executed_in_place(opened) -> None:
    host = opened(Infer())

    host.execute(0, ROWS)
    assert right(host)

    host.outputs["y"][:] = 0
    host.execute(1, 3)
    assert right(host, 1, 3)
    assert not host.outputs["y"][[0, 3]].any()


def test_busy_time_is_the_engines(opened) -> None:
    host = opened(Infer(delay_s=0.05))

    busy_ns = host.execute(0, ROWS)

    assert 0.05e9 <= busy_ns < 5e9


def test_failed_execution_costs_no_process(opened) -> None:
    host = opened(Infer(fail_on=2))

    with pytest.raises(ExecutionError, match="the model refuses 2") as caught:
        host.execute(0, ROWS)
    assert caught.value.kind == "RuntimeError"
    host.execute(0, 2)
    assert right(host, 0, 2)
    assert host.losses == 0


@pytest.mark.parametrize("way", ["SIGKILL", "SIGSEGV", "exit 0"])
def test_process_that_dies_is_replaced(opened, tmp_path, way) -> None:
    host = opened(Infer(fates=(Fate("infer", "mid-write", way, str(tmp_path)),)))

    with pytest.raises(ExecutionError, match=r"^model worker (killed by|exited with)") as caught:
        host.execute(0, ROWS)
    assert caught.value.kind == "crash"
    host.execute(0, ROWS)

    assert right(host)
    assert host.losses == 1


@pytest.mark.parametrize("way", ["hang", "stop"])
def test_process_that_hangs_is_replaced_after_its_limit(opened, tmp_path, way) -> None:
    fate = Fate("infer", "mid-write", way, str(tmp_path))
    host = opened(Infer(fates=(fate,)), limit_s=1.0)

    begin = time.monotonic()
    with pytest.raises(ExecutionError, match=r"^model worker exceeded its limit of 1 s$") as caught:
        host.execute(0, ROWS)
    assert caught.value.kind == "timeout"
    assert 1.0 <= time.monotonic() - begin < 30
    host.execute(0, ROWS)

    assert right(host)


def test_process_that_died_while_idle_is_replaced_unnoticed(opened) -> None:
    host = opened(Infer())
    os.kill(pid_of(host), 9)

    host.execute(0, ROWS)

    assert right(host)
    assert host.losses == 1


def test_fatal_error_is_told_before_its_process_is_replaced(opened, tmp_path) -> None:
    host = opened(Fatal(mark=str(tmp_path / "mark")))

    with pytest.raises(ExecutionError, match="the context is lost") as caught:
        host.execute(0, ROWS)
    assert caught.value.kind == "device_lost"
    host.execute(0, ROWS)

    assert right(host)
    assert host.losses == 1


class Fatal(Infer):
    """Loses its device at the first execution."""

    def __init__(self, mark: str) -> None:
        super().__init__()
        self.mark = mark

    def submit(self, inputs, outputs, count):
        from pathlib import Path

        from gepipe.errors import DeviceLostError

        if not Path(self.mark).exists():
            Path(self.mark).touch()
            raise DeviceLostError("the context is lost")
        return super().submit(inputs, outputs, count)


def test_model_that_stays_away_is_refused_at_once_and_comes_back(
    opened, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(host_module, "_PAUSES_S", (2.0,))
    host = opened(Away(away=str(tmp_path / "away")))
    (tmp_path / "away").touch()
    os.kill(pid_of(host), 9)

    with pytest.raises(ExecutionError, match="the card is away; it is being opened again"):
        host.execute(0, ROWS)
    begin = time.monotonic()
    with pytest.raises(ExecutionError) as caught:
        host.execute(0, ROWS)
    assert caught.value.kind == "unavailable"
    assert time.monotonic() - begin < 30  # not when the model comes back, which it does not yet

    (tmp_path / "away").unlink()
    wait_until(lambda: host._session)
    host.execute(0, ROWS)
    assert right(host)


class Away(Infer):
    """Cannot be opened while a file exists."""

    def __init__(self, away: str) -> None:
        super().__init__()
        self.away = away

    def setup(self):
        from pathlib import Path

        from gepipe.errors import DeviceError

        if Path(self.away).exists():
            raise DeviceError("the card is away")
        return super().setup()


def test_closing_does_not_wait_for_a_model_that_is_being_opened(
    opened, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(host_module, "_PATIENCE_S", (0.1, 0.1))
    fate = Fate("infer", "setup", "hang", str(tmp_path))
    (tmp_path / "infer-setup-hang--1-0").touch()  # not at first
    host = opened(Infer(fates=(fate,)))
    (tmp_path / "infer-setup-hang--1-0").unlink()
    os.kill(pid_of(host), 9)
    with pytest.raises(ExecutionError, match="killed by SIGKILL"):
        host.execute(0, ROWS)

    begin = time.monotonic()
    host.close()

    assert time.monotonic() - begin < 30
    with pytest.raises(ClosedError):
        host.execute(0, ROWS)


def test_model_that_does_not_open_says_why(tmp_path) -> None:
    body = Infer(fates=(Fate("infer", "setup", "raise", str(tmp_path)),))
    with pytest.raises(GepipeError, match="on purpose"):
        ModelHost("model", pickled(body, "model"), worker_environment())


def test_process_that_dies_while_it_opens_the_model_is_told(tmp_path) -> None:
    body = Infer(fates=(Fate("infer", "setup", "SIGKILL", str(tmp_path)),))
    with pytest.raises(BackendError, match=r"SIGKILL.*while the model was opened"):
        ModelHost("model", pickled(body, "model"), worker_environment())


def test_another_model_file_is_not_taken_in_place_of_the_first(tmp_path) -> None:
    model = tmp_path / "model.om"
    model.write_text("one")
    host = ModelHost("model", pickled(Infer(), "model"), worker_environment(), model=model)
    try:
        host.lay_out(SlotLayout.of((INPUT,), ROWS), SlotLayout.of((OUTPUT,), ROWS))
        model.write_text("two")
        host.execute(0, ROWS)
        os.kill(pid_of(host), 9)
        with pytest.raises(ExecutionError, match="the model file has changed; load the model"):
            host.execute(0, ROWS)
    finally:
        host.close()


def test_loss_and_return_are_told() -> None:
    told: list[bool] = []
    body = pickled(Infer(), "model")
    host = ModelHost("model", body, worker_environment(), told.append)
    try:
        host.lay_out(SlotLayout.of((INPUT,), ROWS), SlotLayout.of((OUTPUT,), ROWS))
        os.kill(pid_of(host), 9)
        host.execute(0, ROWS)
    finally:
        host.close()

    assert told == [False, True]


def test_closing_ends_the_process(opened) -> None:
    host = opened(Infer())
    pid = pid_of(host)

    host.close()
    host.close()

    pause(0)
    assert not is_alive(pid)
