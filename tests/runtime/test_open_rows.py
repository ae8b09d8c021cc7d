"""Rows whose shapes travel with the tickets, through tiny stages in workers that die."""

from __future__ import annotations

import struct
from itertools import groupby

import numpy as np
import pytest

from gepipe.io.failures import Failure
from gepipe.io.source import Entry
from gepipe.runtime.body import ModelInfo
from gepipe.runtime.feed import Feed, Portion
from gepipe.runtime.memory import SlotLayout
from gepipe.runtime.options import RunOptions, SlotPlan, Start
from gepipe.runtime.supervisor import Supervisor
from gepipe.tensors import TensorSpec
from tests.support import ROLES, Fate, Infer, Read, Write, crew, payload, record

LARGEST = 40
BATCH = 4


def length(number: int) -> int:
    """Return how long the row of an item is: equal for five in a row."""
    return 2 * (3 + number // 5 % 7)


class WriteOpen(Write):
    """Writes a row of its own length, which the ticket tells or which it chooses."""

    def write(self, payload, rows) -> bytes:
        (number,) = struct.unpack_from("<q", payload)
        room = rows["x"]
        row = room.one((length(number),)) if hasattr(room, "one") else room
        assert row.shape == (length(number),)
        whole = {"x": np.zeros(64)}
        meta = super().write(payload, whole)
        row[:] = number
        return meta


class InferOpen(Infer):
    """Makes rows that are twice as long as what goes in."""

    def setup(self):
        self.strike("setup")
        rows = (TensorSpec("x", "float64", (-1,)),), (TensorSpec("y", "float64", (-1, 2)),)
        return ModelInfo(*rows, largest=(16 * LARGEST,))

    def submit(self, inputs, outputs, count):
        x = inputs["x"]
        assert len(x) == count
        y = outputs["y"].open((x.shape[1], 2))
        numbers = [int(row[0]) for row in x]
        y[..., 0] = 2 * x + 1
        self.strike("mid-write", numbers)
        if self.fail_on in numbers:
            raise RuntimeError(f"the model refuses {self.fail_on}")
        y[..., 1] = 2 * x + 1

    def collect(self, pending) -> None:
        pass


class ReadOpen(Read):
    def read(self, rows, meta) -> bytes:
        row = rows["y"]
        number = (int(row[0, 0]) - 1) // 2
        self.strike("mid-write", [number])
        assert row.shape == (length(number), 2)
        assert (row == 2 * number + 1).all()
        assert meta == b"meta of %d" % number
        return record(number)


class ToldFeed(Feed):
    """Tells the row shape of each item, and seals a batch where it changes."""

    def __init__(self, count: int) -> None:
        self.total: int | None = count
        self._runs = [list(run) for _, run in groupby(range(count), length)]

    def take(self, count: int) -> Portion:
        run = self._runs[0]
        taken, self._runs[0] = run[:count], run[count:]
        over = not self._runs[0]
        if over:
            del self._runs[0]
        entries = [Entry(f"item {n}", payload(n), ((length(n),),)) for n in taken]
        return Portion(entries, not self._runs, seal=over)

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        pass


class UntoldFeed(ToldFeed):
    def take(self, count: int) -> Portion:
        entries, ended, _ = super().take(count)
        return Portion([entry._replace(shapes=()) for entry in entries], ended)


def opened(pre, infer, post, workers=(2, 1, 2)) -> Supervisor:
    def plan(info: ModelInfo) -> SlotPlan:
        inputs = SlotLayout.of(info.inputs, BATCH, (8 * LARGEST,))
        return SlotPlan(inputs, SlotLayout.of(info.outputs, BATCH, info.largest), 2)

    crews = {
        role: crew(body, count)
        for role, body, count in zip(ROLES, (pre, infer, post), workers, strict=True)
    }
    return Supervisor(crews, plan, RunOptions(start_timeout_s=20))  # type: ignore[arg-type]


@pytest.mark.parametrize("feed", [ToldFeed, UntoldFeed])
def test_rows_of_many_lengths_survive_deaths_in_each_stage(tmp_path, feed) -> None:
    fates = tuple(
        Fate(role, "mid-write", "SIGKILL", str(tmp_path), number)
        for number, role in [(3, "pre"), (11, "infer"), (17, "post"), (33, "infer"), (60, "pre")]
    )
    outcomes: list = []
    with opened(WriteOpen(fates), InferOpen(fates), ReadOpen(fates)) as subject:
        statistics = subject.run(lambda _: Start(feed(100)), outcomes.extend)

    assert [o.payload for o in outcomes] == [record(number) for number in range(100)]
    assert sum(stage.restarts for stage in statistics.stages.values()) == len(fates)
    assert statistics.slots_used == (0, 0)


@pytest.mark.parametrize("feed", [ToldFeed, UntoldFeed])
def test_item_that_the_model_refuses_is_found_in_a_batch_of_its_length(feed) -> None:
    outcomes: list = []
    with opened(
        WriteOpen(faults={8: ("broken", "")}), InferOpen(fail_on=22), ReadOpen()
    ) as subject:
        subject.run(lambda _: Start(feed(50)), outcomes.extend)

    failed = [(o.index, o.stage) for o in outcomes if isinstance(o, Failure)]
    assert failed == [(8, "stage pre"), (22, "stage infer")]
    good = [number for number in range(50) if number not in (8, 22)]
    assert [o.payload for o in outcomes if not isinstance(o, Failure)] == list(map(record, good))
