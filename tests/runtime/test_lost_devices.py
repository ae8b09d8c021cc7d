"""Devices that fail while a run goes on: opened anew, done without, or the end of the run."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from gepipe.errors import BackendError, DeviceError, DeviceTimeoutError
from tests.support import (
    ROOT,
    Infer,
    entries,
    listed,
    outcomes_of,
    streamed,
    supervisor,
    undisturbed,
    wait_until,
    workers_of,
)


@dataclass
class Failing(Infer):
    """A device that fails once, at the batch that begins with item `at`, and may not come back.

    A file says that it has failed: another process may find it gone.
    """

    mark: str = ""
    at: int = 4
    comes_back: bool = True
    error: type[DeviceError] = DeviceError

    def setup(self):
        if Path(self.mark).exists() and not self.comes_back:
            raise DeviceError("acl.rt.set_device(0) returned 507033")
        return super().setup()

    def collect(self, pending) -> None:
        x, _ = pending
        if int(x[0][0]) == self.at and not Path(self.mark).exists():
            Path(self.mark).touch()
            raise self.error("the context is lost", fatal=True)
        super().collect(pending)


@pytest.fixture
def failing(tmp_path):
    """Return a function that makes the body of such a device."""
    return lambda **how: Failing(in_flight=2, mark=str(tmp_path / "failed"), **how)


@pytest.mark.parametrize("devices", [1, 2])
def test_device_that_comes_back_costs_no_result(failing, devices) -> None:
    with supervisor(infer=failing(), workers=(1, devices, 1)) as subject:
        outcomes, statistics = outcomes_of(subject, entries(range(40)))

    assert outcomes == undisturbed(range(40))
    assert statistics.stages["infer"].restarts == 1


def test_device_that_stays_away_is_done_without(failing, caplog) -> None:
    outcomes: list = []

    def source():
        yield from entries(range(8))
        wait_until(lambda: len(workers_of(subject, "infer", attached=True)) == 2)
        yield from entries(range(8, 40))
        wait_until(lambda: "507033; going on with 1 infer worker" in caplog.text)
        yield from entries(range(40, 60))

    body = failing(comes_back=False, at=8)
    with supervisor(infer=body, workers=(1, 2, 1)) as subject:
        streamed(subject, source(), outcomes.extend)

    assert outcomes == undisturbed(range(60))


def test_run_without_any_device_left_ends_with_an_exact_prefix(failing) -> None:
    outcomes = []
    with (
        supervisor(infer=failing(comes_back=False)) as subject,
        pytest.raises(BackendError, match="507033"),
    ):
        subject.run(listed(entries(range(40))), outcomes.extend)

    assert outcomes == undisturbed(range(len(outcomes)))


@dataclass
class Busy(Infer):
    """Devices of which the first to be opened is in the hands of another program."""

    mark: str = ""
    times: int = 1

    def setup(self):
        for turn in range(self.times):
            with suppress(FileExistsError):
                Path(f"{self.mark}{turn}").touch(exist_ok=False)
                raise DeviceError("acl.rt.set_device(1) returned 507033")
        return super().setup()


def test_device_that_cannot_be_opened_is_done_without(tmp_path, caplog) -> None:
    body = Busy(mark=str(tmp_path / "busy"))
    with supervisor(infer=body, workers=(1, 2, 1)) as subject:
        outcomes, _ = outcomes_of(subject, entries(range(40)))

    assert outcomes == undisturbed(range(40))
    assert "507033; going on with 1 infer worker" in caplog.text


def test_run_without_any_device_that_opens_ends_with_its_words(tmp_path) -> None:
    body = Busy(mark=str(tmp_path / "busy"), times=2)
    with (
        supervisor(infer=body, workers=(1, 2, 1)) as subject,
        pytest.raises(BackendError, match="507033"),
    ):
        subject.run(listed(entries(range(40))), lambda _: None)


@dataclass
class Broken(Infer):
    """A device that loses its context with every batch."""

    def collect(self, pending) -> None:  # noqa: ARG002
        raise DeviceError("acl.rt.synchronize_stream(1) returned 507011", fatal=True)


def test_device_that_fails_with_every_batch_ends_the_run_with_its_words() -> None:
    with (
        supervisor(infer=Broken(in_flight=2)) as subject,
        pytest.raises(BackendError, match=r"24 workers in a row.*507011"),
    ):
        subject.run(listed(entries(range(400))), lambda _: None)


@dataclass
class Unwilling(Infer):
    """A device that does not release its model."""

    def close(self) -> None:
        raise DeviceError("acl.mdl.unload(1) returned 507000")


def test_model_that_does_not_close_costs_a_line() -> None:
    program = """
from tests.runtime.test_lost_devices import Unwilling
from tests.support import entries, outcomes_of, supervisor, undisturbed

with supervisor(infer=Unwilling()) as subject:
    outcomes, _ = outcomes_of(subject, entries(range(8)))
assert outcomes == undisturbed(range(8))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT.parent, capture_output=True, text=True, check=True
    )

    assert done.stderr == "the model did not close: acl.mdl.unload(1) returned 507000\n"


def test_execution_that_exceeds_its_limit_is_tried_elsewhere(failing) -> None:
    with supervisor(infer=failing(error=DeviceTimeoutError), workers=(1, 2, 1)) as subject:
        outcomes, _ = outcomes_of(subject, entries(range(40)))

    assert outcomes == undisturbed(range(40))
