"""The state of a service against a model that knows what may happen to callers and workers."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gepipe.errors import BackendError
from gepipe.io.failures import Failure
from gepipe.runtime import events as ev
from gepipe.runtime.events import Fault, WorkerId
from gepipe.runtime.passage import LOSSES_SURVIVED
from gepipe.serving.events import Answer, Arrived, Cancelled, Drain, Held, WakeAt
from gepipe.serving.shape import ServingShape
from gepipe.serving.state import ServingState

#: Row shapes: not known, and those of two sizes.
SHAPES = ((), ((3, 48, 64),), ((3, 48, 128),))
NAMES = {"pre": "preprocess", "infer": "inference", "post": "postprocess"}


@dataclass
class World:
    """Memory, workers and callers as they would be, and every rule that they must see kept."""

    shape: ServingShape
    now: float = 100.0
    held: dict[WorkerId, deque[Any]] = field(default_factory=dict)
    up: dict[WorkerId, bool] = field(default_factory=dict)
    lost: set[WorkerId] = field(default_factory=set)
    items: dict[int, Arrived] = field(default_factory=dict)
    answers: dict[int, Any] = field(default_factory=dict)
    dealt: list[int] = field(default_factory=list)
    cancelled: set[int] = field(default_factory=set)
    inputs: dict[tuple[int, int], int] = field(default_factory=dict)  # (slot, row) -> seq
    outputs: dict[tuple[int, int], int] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    computed: set[int] = field(default_factory=set)
    read: set[int] = field(default_factory=set)
    deserved: set[int] = field(default_factory=set)
    deaths: Counter[tuple[str, int]] = field(default_factory=Counter)
    failures: Counter[int] = field(default_factory=Counter)  # executions that failed, by item
    alone: set[int] = field(default_factory=set)  # failed in an execution of their own, or in time
    draining: bool = False
    held_back: bool = False
    broken: bool = False
    wake: float = math.inf

    def __post_init__(self) -> None:
        self.state = ServingState(self.shape)
        self.dying: set[WorkerId] = set()  # whose device is lost, and whose end is not known yet
        for role, count in self.shape.workers.items():
            for index in range(count):
                self.held[WorkerId(role, index)] = deque()
                self.up[WorkerId(role, index)] = False

    # --- events -----------------------------------------------------------------------------------

    def handle(self, *events: Any) -> None:
        for command in self.state.handle(self.now, events):
            self._obey(command)
        due = [s for s, i in self.items.items() if s not in self.answers and i.deadline <= self.now]
        assert not due, "an item has outlived its deadline"

    def arrive(
        self, count: int, *, realtime: bool, patience: float, shapes: Sequence[Any] = ((),)
    ) -> None:
        events = []
        for _ in range(count):
            seq = len(self.items)
            its = shapes[seq % len(shapes)]
            event = Arrived(seq, b"p", realtime, self.now + patience, its)
            self.items[event.seq] = event
            events.append(event)
        self.handle(*events)

    def ready(self, worker: WorkerId) -> None:
        self.up[worker] = True
        self.handle(ev.WorkerReady(worker))

    def reply(
        self,
        worker: WorkerId,
        bad: set[int] | None = None,
        *,
        fails: bool = False,
        fatal: bool = False,
    ) -> None:
        command, bad = self.held[worker].popleft(), bad or set()
        results: list[Any] = []
        if isinstance(command, ev.Run):
            seqs = self._executed(command)
            results = [Fault("RuntimeError", "refused", fatal=fatal) if fails else b""]
            if fatal:
                self.up[worker] = False
                self.dying.add(worker)
            if fails:
                self._execution_failed(seqs)
            else:
                self.computed.update(seqs)
        else:
            for seq in command.seqs:
                if seq in bad:
                    self.deserved.add(seq)
                    results.append(Fault("broken", f"item {seq}"))
                elif isinstance(command, ev.Write):
                    self.written.add(seq)
                    results.append(b"meta %d" % seq)
                else:
                    self.read.add(seq)
                    results.append(b"record %d" % seq)
        self.handle(ev.Replied(worker, command.ticket, 1_000_000, results))

    def die(self, worker: WorkerId, culprit: int = -1, *, hung: bool = False) -> None:
        lost, self.held[worker] = self.held[worker], deque()
        self.up[worker] = False
        self.dying.discard(worker)
        for command in lost:
            if isinstance(command, ev.Run):
                if command.seq == culprit:
                    self._execution_failed(self._executed(command), hung=hung)
            elif culprit < 0 and command is lost[0]:
                for seq in command.seqs:
                    self.deaths[f"{worker.role} lost", seq] += 1
                    if self.deaths[f"{worker.role} lost", seq] > LOSSES_SURVIVED:
                        self.deserved.add(seq)
            elif culprit in command.seqs:
                self.deaths[worker.role, culprit] += 1
                if self.deaths[worker.role, culprit] > 1:
                    self.deserved.add(culprit)
        self.handle(ev.WorkerExited(worker, "killed by SIGKILL", culprit, hung))

    def lose(self, worker: WorkerId) -> None:
        self.lost.add(worker)
        if all(w in self.lost for w in self.up if w.role == "infer"):
            self.broken = True
        self.handle(ev.WorkerLost(worker, BackendError("no device")))

    # --- commands ---------------------------------------------------------------------------------

    def _obey(self, command: Any) -> None:  # noqa: PLR0912 - one branch a command
        match command:
            case ev.Write(worker, _, slot, rows, seqs, payloads, shapes):
                self._take(worker, command)
                assert not self.held_back or set(seqs) <= set(self.dealt), "begun while held"
                assert {self.items[seq].shapes for seq in seqs} == {shapes or ()}
                assert len(rows) == len(seqs) == len(payloads)
                assert all(run.input_slot != slot for run in self._held(ev.Run))
                for row, seq in zip(rows, seqs, strict=True):
                    assert slot < self.shape.depth
                    assert row < self.shape.batch
                    before = self.inputs.get((slot, row), seq)
                    over = before in self.computed or before in self.answers
                    assert before == seq or over, "a row in use"
                    if before != seq or seq not in self.dealt:
                        assert seq not in self.answers, "dealt although it is answered"
                        self.dealt.append(seq)
                    self.inputs[slot, row] = seq
            case ev.Run(worker, _, slot, out, first, last, holes, _, shapes):
                self._take(worker, command)
                assert all(w.slot != slot for w in self._held(ev.Write)), "run while written"
                classes = set()
                for row in range(first, last):
                    seq = self.inputs[slot, row]
                    classes.add(self.items[seq].realtime)
                    assert self.items[seq].shapes == (shapes or ()), "a batch of two shapes"
                    if row in holes:
                        assert seq in self.answers, "a hole that holds an item"
                        continue
                    assert seq in self.written, "executed before it was written"
                    before = self.outputs.get((out, row), seq)
                    assert before == seq or before in self.read or before in self.answers
                    self.outputs[out, row] = seq
                assert len(classes) == 1, "a batch of two classes"
            case ev.Read(worker, _, slot, rows, seqs, metas):
                self._take(worker, command)
                for row, seq, meta in zip(rows, seqs, metas, strict=True):
                    assert self.outputs[slot, row] == seq
                    assert seq in self.computed, "read before it was computed"
                    assert meta == b"meta %d" % seq
            case ev.StartWorker(worker):
                assert not self.up[worker]
            case Answer(seq, result):
                self._answered(seq, result)
            case WakeAt(time):
                assert time > self.now, "to be called at once again"
                self.wake = time
            case ev.Abort():
                assert self.broken
            case _:
                raise AssertionError(command)

    def _take(self, worker: WorkerId, command: Any) -> None:
        assert self.up[worker], f"{worker} is given work while it is down"
        for other in self._held(type(command)):
            if isinstance(command, ev.Run):
                apart = command.last <= other.first or other.last <= command.first
                assert apart or command.output_slot != other.output_slot
                assert apart or command.input_slot != other.input_slot
            else:
                both = set(command.rows) & set(other.rows)
                assert command.slot != other.slot or not both, "two workers on a row"
        self.held[worker].append(command)
        assert len(self.held[worker]) <= 2

    def _answered(self, seq: int, result: Any) -> None:
        assert seq in self.items
        assert seq not in self.answers, "answered twice"
        self.answers[seq] = result
        if not isinstance(result, Failure):
            assert result == b"record %d" % seq
            return
        assert result.index == seq
        if result.kind == "overloaded":
            realtime = self.items[seq].realtime
            waits = [s for s in self.items if s not in self.answers and s not in self.dealt]
            waits = [s for s in waits if self.items[s].realtime == realtime and s < seq]
            assert len(waits) >= self.shape.queue
        elif result.kind == "expired":
            assert self.items[seq].deadline <= self.now
        elif result.kind == "cancelled":
            assert seq in self.cancelled
        elif result.kind == "unavailable":
            assert self.draining or self.broken
        elif result.stage == "inference":
            assert self.failures[seq] >= 2, "given up after one failure"
            assert seq in self.alone, "punished for another item"
        else:
            assert seq in self.deserved, f"{result} is innocent"

    # --- bookkeeping ------------------------------------------------------------------------------

    def _held(self, kind: type) -> list[Any]:
        return [c for tickets in self.held.values() for c in tickets if isinstance(c, kind)]

    def _executed(self, command: ev.Run) -> list[int]:
        rows = [r for r in range(command.first, command.last) if r not in command.holes]
        return [self.inputs[command.input_slot, row] for row in rows]

    def _execution_failed(self, seqs: list[int], *, hung: bool = False) -> None:
        self.failures.update(seqs)
        if hung or len([s for s in seqs if s not in self.answers]) <= 1 or len(seqs) == 1:
            self.alone.update(seqs)

    def workers(self, state: str) -> list[WorkerId]:
        return {
            "down": [w for w, up in self.up.items() if not up and w not in self.lost | self.dying],
            "up": [w for w, up in self.up.items() if up],
            "busy": [w for w, tickets in self.held.items() if tickets and w not in self.dying],
            "dying": sorted(self.dying),
        }[state]

    def finish(self) -> None:
        """Let everything go well from here on; every item must be answered."""
        for _ in range(5000):
            if len(self.answers) == len(self.items):
                assert not len(self.state.backlog)
                return
            if self.dying:
                self.die(min(self.dying))
            elif self.workers("down"):
                self.ready(self.workers("down")[0])
            elif self.workers("busy"):
                self.reply(self.workers("busy")[0])
            else:
                assert self.wake < math.inf, "the service stands still"
                self.now = max(self.now, self.wake)
                self.handle()
        raise AssertionError("the service does not end")


class Services(RuleBasedStateMachine):
    """Anything may happen, in any order."""

    @initialize(
        batch=st.integers(1, 6),
        depth=st.integers(2, 4),
        workers=st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)),
        in_flight=st.integers(1, 2),
        queue=st.sampled_from([2, 10, 1000]),
        max_wait_s=st.sampled_from([0.0, 0.0, 0.01]),
    )
    def begin(self, batch, depth, workers, in_flight, queue, max_wait_s) -> None:  # noqa: PLR0917
        self.world = World(
            ServingShape(
                batch=batch,
                depth=depth,
                workers=dict(zip(NAMES, workers, strict=True)),
                names=NAMES,
                in_flight=in_flight,
                queue=queue,
                max_wait_s=max_wait_s,
            )
        )

    @rule(
        count=st.integers(1, 9),
        realtime=st.booleans(),
        patience=st.sampled_from([math.inf, math.inf, 0.05, 0.5, 0.0]),
        shapes=st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3),
    )
    def items_arrive(self, count, realtime, patience, shapes) -> None:
        self.world.arrive(count, realtime=realtime, patience=patience, shapes=shapes)

    @rule(on=st.sampled_from([True, False, False]))
    def what_waits_is_held_back(self, on) -> None:
        self.world.held_back = on
        self.world.handle(Held(on))

    @precondition(lambda self: self.world.items)
    @rule(data=st.data())
    def item_is_cancelled(self, data) -> None:
        seq = data.draw(st.sampled_from(sorted(self.world.items)))
        self.world.cancelled.add(seq)
        self.world.handle(Cancelled(seq))

    @precondition(lambda self: self.world.workers("down"))
    @rule(data=st.data())
    def worker_becomes_ready(self, data) -> None:
        self.world.ready(data.draw(st.sampled_from(self.world.workers("down"))))

    @precondition(lambda self: self.world.workers("busy"))
    @rule(data=st.data(), times=st.integers(1, 5))
    def workers_reply(self, data, times) -> None:
        for _ in range(times):
            if busy := self.world.workers("busy"):
                self.world.reply(data.draw(st.sampled_from(busy)))

    @precondition(lambda self: self.world.workers("busy"))
    @rule(data=st.data(), everything=st.booleans())
    def worker_replies_with_faults(self, data, everything) -> None:
        worker = data.draw(st.sampled_from(self.world.workers("busy")))
        command = self.world.held[worker][0]
        if isinstance(command, ev.Run):
            self.world.reply(worker, fails=True, fatal=data.draw(st.booleans()))
        else:
            bad = set(command.seqs)
            self.world.reply(
                worker, bad if everything else {data.draw(st.sampled_from(sorted(bad)))}
            )

    @precondition(lambda self: self.world.workers("dying"))
    @rule(data=st.data())
    def worker_whose_device_is_lost_ends(self, data) -> None:
        self.world.die(data.draw(st.sampled_from(self.world.workers("dying"))))

    @precondition(lambda self: self.world.workers("up"))
    @rule(data=st.data(), hung=st.booleans())
    def worker_dies(self, data, hung) -> None:
        worker = data.draw(st.sampled_from(self.world.workers("up")))
        held = self.world.held[worker]
        seqs = [held[0].seq] if held and worker.role == "infer" else held[0].seqs if held else []
        culprit = data.draw(st.sampled_from([-1, *seqs]))
        self.world.die(worker, culprit, hung=hung and culprit >= 0)

    @precondition(lambda self: any(w.role == "infer" for w in self.world.workers("down")))
    @rule(data=st.data(), really=st.sampled_from([False, False, False, True]))
    def device_does_not_come_back(self, data, really) -> None:
        down = [w for w in self.world.workers("down") if w.role == "infer"]
        if really:
            self.world.lose(data.draw(st.sampled_from(down)))

    @rule(seconds=st.sampled_from([0.0005, 0.005, 0.05, 1.0]))
    def time_passes(self, seconds) -> None:
        self.world.now += seconds
        if self.world.now >= self.world.wake:
            self.world.wake = math.inf
            self.world.handle()
        due = [i.deadline for s, i in self.world.items.items() if s not in self.world.answers]
        assert min(due, default=math.inf) > self.world.now, "nobody looked at a deadline"

    @precondition(lambda self: not self.world.draining)
    @rule(really=st.sampled_from([False, False, False, True]))
    def service_is_told_to_drain(self, really) -> None:
        if really:
            self.world.draining = True
            self.world.handle(Drain())

    @invariant()
    def slots_are_bounded_and_shared(self) -> None:
        if not hasattr(self, "world"):
            return
        state, shape = self.world.state, self.world.shape
        assert max(state.slots_used()) <= shape.depth
        for table in (state._inputs, state._outputs):
            assert max(table._held) < shape.depth, "a class has left the other one no slot"
            assert min(table._held) >= 0

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.what_waits_is_held_back(on=False)
            self.world.finish()
            for _ in range(1000):  # what nobody wants any more is finished too
                for worker in self.world.workers("dying"):
                    self.world.die(worker)
                for worker in self.world.workers("down"):
                    self.world.ready(worker)
                if self.world.workers("busy"):
                    self.world.reply(self.world.workers("busy")[0])
                elif self.world.wake < math.inf:
                    self.world.now = max(self.world.now, self.world.wake)
                    self.world.wake = math.inf
                    self.world.handle()
                else:
                    break
            if not self.world.broken:
                used = self.world.state.slots_used()
                assert used == (0, 0), f"slots of nobody: {used}"


TestServices = Services.TestCase
TestServices.settings = settings(
    max_examples=150,
    stateful_step_count=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
