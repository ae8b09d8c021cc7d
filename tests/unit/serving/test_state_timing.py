"""How long items wait, seen in a simulation: workers that take exactly as long as they are told."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gepipe.io.failures import Failure
from gepipe.runtime import events as ev
from gepipe.runtime.events import WorkerId
from gepipe.serving.events import Answer, Arrived, WakeAt
from gepipe.serving.shape import ServingShape
from gepipe.serving.state import ServingState

NAMES = {"pre": "preprocess", "infer": "inference", "post": "postprocess"}
BATCH = 8
BATCH_S = 0.020
HOP_S = 0.0002  # from a worker's reply to its arrival


@dataclass
class Simulation:
    """Workers, and callers who ask anew when they are answered.

    Attributes:
        pre_s: How long a pre worker takes for an item.
        infer_s: How long a device takes for an execution, whatever it holds.
    """

    pre_s: float = 0.0005
    infer_s: float = BATCH_S
    pre_workers: int = 2
    devices: int = 1
    in_flight: int = 1
    depth: int = 3
    max_wait_s: float = 0.0
    now: float = 0.0
    again: set[bool] = field(default_factory=set)  # classes whose callers ask anew
    began: dict[int, float] = field(default_factory=dict)  # when an item's execution began
    answered: dict[int, float] = field(default_factory=dict)
    runs: list[tuple[float, bool, int]] = field(default_factory=list)  # begin, class, rows
    busy_s: float = 0.0

    def __post_init__(self) -> None:
        workers = {"pre": self.pre_workers, "infer": self.devices, "post": 1}
        self.state = ServingState(
            ServingShape(BATCH, self.depth, workers, NAMES, self.in_flight, 1000, self.max_wait_s)
        )
        self._seqs, self._order = count(), count()
        self._events: list[Any] = []
        self._free_at = {WorkerId(role, i): 0.0 for role, n in workers.items() for i in range(n)}
        self._slot: dict[tuple[int, int], int] = {}
        self._class: dict[int, bool] = {}
        self._wake = math.inf
        for worker in self._free_at:
            self._handle(ev.WorkerReady(worker))

    def ask(self, number: int = 1, *, realtime: bool = False) -> list[int]:
        seqs = [next(self._seqs) for _ in range(number)]
        self._class |= dict.fromkeys(seqs, realtime)
        for seq in seqs:
            self._handle(Arrived(seq, b"", realtime))
        return seqs

    def run(self, until: float) -> None:
        while True:
            next_event = self._events[0][0] if self._events else math.inf
            if min(next_event, self._wake) > until:
                break
            if self._wake <= next_event:
                self.now, self._wake = self._wake, math.inf
                self._handle()
                continue
            self.now, _, call = heappop(self._events)
            call()
        self.now = until

    def _handle(self, *events: Any) -> None:
        for command in self.state.handle(self.now, events):
            match command:
                case ev.Write(worker, ticket, slot, rows, seqs, _):
                    self._slot |= {(slot, r): s for r, s in zip(rows, seqs, strict=True)}
                    took = self.pre_s * len(seqs)
                    self._reply_at(
                        self._begin(worker, took) + took, worker, ticket, took, len(seqs)
                    )
                case ev.Run(worker, ticket, slot, _, first, last, _, _):
                    begin = self._begin(worker, self.infer_s)
                    seqs = [self._slot[slot, row] for row in range(first, last)]
                    self.began |= dict.fromkeys(seqs, begin)
                    self.runs.append((begin, self._class[seqs[0]], len(seqs)))
                    self.busy_s += self.infer_s
                    self._reply_at(begin + self.infer_s, worker, ticket, self.infer_s, 1)
                case ev.Read(worker, ticket, _, _, seqs, _):
                    self._reply_at(self._begin(worker, 0.0), worker, ticket, 1e-6, len(seqs))
                case Answer(seq, result):
                    assert not isinstance(result, Failure), result
                    self.answered[seq] = self.now
                    if self._class[seq] in self.again:
                        again = self._class[seq]
                        self._at(self.now, lambda again=again: self.ask(realtime=again))
                case WakeAt(time):
                    self._wake = time

    def _begin(self, worker: WorkerId, took: float) -> float:
        begin = max(self.now, self._free_at[worker])
        self._free_at[worker] = begin + took
        return begin

    def _reply_at(
        self, when: float, worker: WorkerId, ticket: int, took: float, results: int
    ) -> None:
        reply = ev.Replied(worker, ticket, round(took * 1e9), [b""] * results)
        self._at(when + HOP_S, lambda: self._handle(reply))

    def _at(self, when: float, call: Any) -> None:
        heappush(self._events, (when, next(self._order), call))


def saturated(**more: Any) -> Simulation:
    """Return a service with more bulk items than it can do, which has learnt how long they take."""
    subject = Simulation(**more)
    subject.again = {False}
    subject.ask(64)
    subject.run(0.5)
    return subject


def test_an_item_alone_waits_for_nobody():
    subject = Simulation()

    (seq,) = subject.ask()
    subject.run(1.0)

    assert subject.answered[seq] == pytest.approx(subject.pre_s + subject.infer_s + 3 * HOP_S)


def test_a_part_filled_batch_waits_where_it_is_told_to():
    subject = Simulation(max_wait_s=0.1)

    (seq,) = subject.ask()
    subject.run(1.0)

    assert subject.answered[seq] == pytest.approx(0.1 + subject.infer_s + 2 * HOP_S)


def test_a_full_batch_does_not_wait():
    subject = Simulation(max_wait_s=10.0)

    seqs = subject.ask(BATCH)
    subject.run(1.0)

    assert len([seq for seq in seqs if seq in subject.answered]) == BATCH


@given(moment=st.floats(0, 1, exclude_max=True), in_flight=st.sampled_from([1, 2]))
@settings(max_examples=100)
def test_a_realtime_item_among_bulk_begins_within_one_and_a_half_batches(moment, in_flight):
    subject = saturated(in_flight=in_flight, depth=2 + in_flight)
    subject.run(0.5 + moment * BATCH_S)

    arrived = subject.now
    (seq,) = subject.ask(realtime=True)
    subject.run(arrived + 1.0)

    # Beside the executions: two tickets of the worker it is given to, and its own row.
    tickets = 2 * 0.004 + subject.pre_s
    assert subject.began[seq] - arrived <= max(1.5 * BATCH_S, tickets)


@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize("devices", [1, 2])
def test_a_saturated_device_never_stands_still_and_gets_full_batches(in_flight, devices):
    subject = saturated(
        in_flight=in_flight, devices=devices, depth=(2 + in_flight) * devices, pre_workers=4
    )

    busy_s, runs = subject.busy_s, len(subject.runs)
    subject.run(2.5)

    assert (subject.busy_s - busy_s) / (2.0 * devices) >= 0.999
    rows = [rows for _, _, rows in subject.runs[runs:]]
    assert sum(rows) / len(rows) >= 0.95 * BATCH


def test_bulk_keeps_its_share_among_more_realtime_than_can_be_done():
    subject = saturated()
    subject.again = {False, True}
    subject.ask(64, realtime=True)
    subject.run(3.0)

    subject.runs = [run for run in subject.runs if run[0] >= 0.6]
    classes = [realtime for _, realtime, _ in subject.runs]
    windows = [classes[at : at + 8] for at in range(len(classes) - 8)]

    assert len(windows) > 50
    assert all(not all(window) for window in windows), "eight in a row, and no bulk"
    assert classes.count(True) / len(classes) >= 0.8
    bulk = [rows for _, realtime, rows in subject.runs if not realtime]
    assert sum(bulk) / len(bulk) >= 0.9 * BATCH


def test_a_second_execution_is_submitted_late():
    subject = saturated()
    submitted: list[float] = []
    handle = subject.state.handle

    def watched(now: float, events: Any = ()) -> Any:
        commands = handle(now, events)
        submitted.extend(now for command in commands if isinstance(command, ev.Run))
        return commands

    subject.state.handle = watched
    begun = len(subject.runs)
    subject.run(1.0)

    leads = [run[0] - when for run, when in zip(subject.runs[begun:], submitted, strict=True)]
    assert len(leads) > 20
    assert max(leads) <= 0.0015
