"""The parts of a service that decide one thing each."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gepipe.errors import ItemError
from gepipe.runtime.batches import Batch, Execution, Item
from gepipe.runtime.events import WorkerId
from gepipe.runtime.roster import Roster
from gepipe.serving.backlog import Backlog
from gepipe.serving.classes import SHARE, Turns
from gepipe.serving.events import Arrived
from gepipe.serving.pace import Pace, Times
from gepipe.serving.payloads import PayloadReader, to_payload
from gepipe.serving.request import rows_of, wants_realtime


@pytest.mark.parametrize(
    ("parameters", "wish"),
    [
        ("", False),
        ("{}", False),
        ('{"other": 1}', False),
        ('{"realtime": true}', True),
        ('{"realtime": "true"}', True),
        ('{"realtime": 1}', True),
        ('{"realtime": false}', False),
        ('{"realtime": "bulk"}', False),
    ],
)
def test_a_request_says_its_class(parameters, wish):
    assert wants_realtime(parameters) is wish


@pytest.mark.parametrize("value", ['"soon"', "2", "[]", "0.5"])
def test_a_class_that_is_none_is_named(value):
    with pytest.raises(ItemError, match="expected true or false"):
        wants_realtime(f'{{"realtime": {value}}}')


class Request:
    """A request of the server, as far as rows are concerned."""

    def __init__(self, name: str, array: np.ndarray) -> None:
        self._name, self._array = name, array

    def inputs(self) -> list[Request]:
        return [self]

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray:
        return self._array


def test_rows_are_texts_or_arrays():
    texts = Request("INPUT", np.array([[b"a"], [b"b"]], object))
    arrays = Request("INPUT", np.arange(6.0).reshape(2, 3))

    assert list(rows_of(texts, "INPUT", is_text=True)) == [b"a", b"b"]
    assert [list(row) for row in rows_of(arrays, "INPUT", is_text=False)] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ItemError, match=r"shape \[2, 2\]; expected \[n, 1\]"):
        rows_of(Request("INPUT", np.full((2, 2), b"a", object)), "INPUT", is_text=True)


@pytest.mark.parametrize("value", [np.arange(6, dtype=">i2").reshape(2, 3), np.float32(4.5)])
def test_arrays_arrive_as_they_were(value):
    read = PayloadReader().read(to_payload(value))

    assert read.dtype == value.dtype
    assert read.shape == value.shape
    assert np.array_equal(read, value)


def test_bytes_are_not_copied_and_nothing_is_no_input():
    content = b"x" * 100
    assert to_payload(content) is content
    assert PayloadReader().read(to_payload(memoryview(content))) == content
    with pytest.raises(ItemError, match="0 bytes") as caught:
        PayloadReader().read(b"")
    assert caught.value.kind == "empty"


def test_bulk_gets_its_turn():
    turns, picks = Turns(), []
    for _ in range(3 * SHARE):
        picks.append(turns.choose(realtime=True, bulk=True))
        turns.took(picks[-1], bulk=True)

    assert picks == ([True] * (SHARE - 1) + [False]) * 3


def test_turns_are_not_saved_up_while_bulk_does_not_wait():
    turns = Turns()
    for _ in range(100):
        turns.took(True, bulk=False)

    assert turns.choose(realtime=True, bulk=True) is True
    assert turns.choose(realtime=False, bulk=True) is False
    assert turns.choose(realtime=False, bulk=False) is None


def test_times_are_learnt_and_rather_too_short():
    times = Times()
    assert times.expect(4) is None

    times.add(8, 0.080)
    assert times.expect(8) == 0.080
    assert times.expect(2) == pytest.approx(0.020)
    times.add(2, 0.050)
    assert times.expect(4) == 0.050
    assert times.expect(16) == 0.080
    for _ in range(50):
        times.add(8, 0.100)
    assert times.expect(8) == pytest.approx(0.100, rel=1e-3)


@pytest.mark.parametrize(("in_flight", "lead_s"), [(1, 0.001), (2, 0.005)])
def test_the_next_execution_leads_by_a_bounded_share(in_flight, lead_s):
    roster = Roster({"infer": 1}, in_flight=in_flight)
    worker = WorkerId("infer", 0)
    pace = Pace(roster, 1, in_flight)
    roster[worker].up = True
    assert pace.pick(0.0) == (worker, True)
    batch = Batch(0, items=[Item(0, 0, "", b"")])
    roster[worker].held.append(Execution(batch, 0, 1))
    pace.begin(worker, 5.0)
    assert pace.pick(5.0) == (worker, False)  # nothing is learnt yet

    pace.times.add(1, 0.040)

    assert pace.next_free() == pytest.approx(5.0 + 0.040 - lead_s)
    assert pace.pick(5.0) is None
    assert pace.pick(pace.next_free()) == (worker, False)
    roster[worker].held.append(Execution(batch, 0, 1))
    assert pace.pick(1e9) is None


def test_answers_are_given_once():
    backlog = Backlog(10, "preprocess")
    backlog.arrive(Arrived(0, b"", deadline=5.0), 1.0, None)
    backlog.drop(0, "cancelled", "gone")
    backlog.succeed(0, b"{}")
    backlog.expire(6.0)

    assert [answer.result.kind for answer in backlog.answers] == ["cancelled"]
    assert (len(backlog), backlog.done, backlog.next_deadline()) == (0, 0, math.inf)
