"""What becomes of the first inputs, and what is said of it."""

from contextlib import nullcontext

import pytest

from gepipe.errors import ConfigError, Interrupted
from gepipe.io.failures import Failure
from gepipe.pipeline import rehearsal
from gepipe.pipeline.rehearsal import Rehearsal, rehearse


def failures(*kinds):
    return [Failure(n, f"{n}.jpg", "preprocess", kind, "no") for n, kind in enumerate(kinds)]


def test_all_that_were_tried_are_counted_whatever_they_failed_of():
    found = Rehearsal(splits=False)
    found.see(failures("unreadable", "shape", "shape"))

    with pytest.raises(ConfigError, match=r"the first 3 inputs all fail: 1\.jpg: no"):
        found.require_success()


def test_failures_of_the_inputs_alone_say_nothing_of_the_pipeline():
    found = Rehearsal(splits=False)
    found.see(failures("unreadable", "empty"))

    found.require_success()

    assert not found.is_fine


class Slow:
    """A pipeline that is stopped by the limit behind some inputs."""

    def __init__(self, outcomes):
        self.outcomes = outcomes

    def run(self, _start, emit):
        emit(self.outcomes)
        raise Interrupted("stopped on request")


class Inputs:
    reader = None

    def entries(self):
        return iter(range(8))


class Planned:
    class spec:  # noqa: N801 - stands for the field
        mids = ()


@pytest.fixture
def stopped(monkeypatch):
    def stopped(*kinds):
        slow = Slow(failures(*kinds))
        monkeypatch.setattr(rehearsal, "assemble", lambda *_: nullcontext(slow))
        monkeypatch.setattr(rehearsal, "_lean", lambda planned: planned)
        monkeypatch.setattr(rehearsal, "_limited", lambda _: nullcontext())
        return rehearse(Planned, Inputs())

    return stopped


def test_what_was_found_before_the_limit_is_told(stopped):
    with pytest.raises(ConfigError, match="the first 2 inputs all fail"):
        stopped("shape", "shape")


def test_the_limit_is_a_note_where_nothing_was_found(stopped):
    assert stopped() == "the first 8 inputs take more than 60 s to be tried"
