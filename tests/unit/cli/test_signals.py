"""A signal before the run begins: whatever made a fault of it, the command was stopped."""

import os
import signal

import pytest

from gepipe.cli import signals
from gepipe.errors import ConfigError, Interrupted, PluginError


class Starting:
    """A job that has not begun."""

    stopped = False

    def request_stop(self):
        self.stopped = True

    def statistics(self):
        return None


@pytest.fixture(autouse=True)
def _handlers():
    before = {number: signal.getsignal(number) for number in (1, 2, 15)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("fault", [PluginError, ConfigError, ValueError])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_inside_an_import_is_no_fault_of_what_is_imported(fault, number):
    job, told = Starting(), []

    def load():  # as that of a plugin or of a user's module
        try:
            os.kill(os.getpid(), number)
        except Exception as error:
            raise fault(f"it does not import: {error}") from error

    def start():
        with signals.stopping(job, lambda: told.append(True)):
            load()

    with pytest.raises(Interrupted, match="before the run began"):
        start()
    assert job.stopped
    assert told == [True]


def test_faults_without_a_signal_stay_what_they_are():
    with pytest.raises(ConfigError, match="no such file"), signals.stopping(Starting(), print):
        raise ConfigError("no such file")
