"""The state of a run against a model that knows what may happen to workers and memory."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from gepipe.errors import BackendError, StageError, WorkerError
from gepipe.io.sink import Record
from gepipe.io.source import Entry
from gepipe.runtime import events as ev
from gepipe.runtime.events import Fault, WorkerId
from gepipe.runtime.options import RunShape
from gepipe.runtime.passage import DEATHS_IN_A_ROW, LOSSES_SURVIVED
from gepipe.runtime.state import RunState

NAMES = {"pre": "preprocess", "infer": "inference", "post": "postprocess"}


@dataclass
class Ticket:
    command: ev.Write | ev.Run | ev.Read

    @property
    def role(self) -> str:
        return self.command.worker.role


@dataclass
class World:
    """Memory, workers and source as they would be, and every rule that they must see kept."""

    shape: RunShape
    total: int
    bursts: random.Random
    dry_chance: float = 0.0
    seals: set[int] = field(default_factory=set)  # counts of items after which a batch is whole
    tells: bool = False  # whether the source tells the shapes of rows
    held: dict[WorkerId, deque[Ticket]] = field(default_factory=dict)
    up: dict[WorkerId, bool] = field(default_factory=dict)
    admitted: int = 0
    to_seal: bool = False
    released: set[int] = field(default_factory=set)  # what pre is done with, as the source knows
    dry: bool = False
    waits: list[int] = field(default_factory=list)
    emitted: list[Any] = field(default_factory=list)
    abort: Any = None
    row_of: dict[int, int] = field(default_factory=dict)
    inputs: dict[tuple[int, int], int] = field(default_factory=dict)  # (slot, row) -> seq
    outputs: dict[tuple[int, int], int] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    computed: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    deserved: set[int] = field(default_factory=set)
    deaths: dict[tuple[str, int], int] = field(default_factory=dict)
    split: set[int] = field(default_factory=set)  # items of executions that were halved
    streak: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NAMES, 0))

    def __post_init__(self) -> None:
        self.state = RunState(self.shape)
        self.only_pre = "infer" not in self.shape.workers
        self.read: set[int] = set()
        for role, count in self.shape.workers.items():
            for index in range(count):
                self.held[WorkerId(role, index)] = deque()
                self.up[WorkerId(role, index)] = False
        self.unstarted = set(self.shape.unstarted)
        self.dying: set[WorkerId] = set()  # whose device is lost, and whose end is not known yet

    # --- events -----------------------------------------------------------------------------------

    def handle(self, event: Any) -> None:
        commands = deque(self.state.handle(event))
        while commands:
            command = commands.popleft()
            assert self.abort is None, f"{command} after the end"
            if isinstance(command, ev.Pull):
                commands.extend(self.state.handle(self._pull(command.count)))
            else:
                self._obey(command)

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
        """Finish a worker's oldest ticket; `bad` items, or the whole execution, with a fault."""
        ticket = self.held[worker].popleft()
        command, bad = ticket.command, bad or set()
        results: list[Any]
        shapes = None
        if isinstance(command, ev.Run):
            seqs = self._executed(command)
            if fails:
                results = [Fault("RuntimeError", "refused", fatal=fatal)]
                if fatal:
                    self.up[worker] = False
                    self.dying.add(worker)
                self._execution_failed(command, seqs)
                self.streak["infer"] += 1
            else:
                results = [b""]
                shapes = made_of(command.shapes)
                self.streak["infer"] = 0
                for seq in seqs:
                    self._free_input(command.input_slot, seq)
                    self.computed.add(seq)
        else:
            self.streak[ticket.role] = 0
            results = []
            for seq in command.seqs:
                if seq in bad:
                    results.append(Fault("broken", f"item {seq}"))
                    self.deserved.add(seq)
                    self._gone(seq, command.slot, ticket.role)
                elif isinstance(command, ev.Write) and self.only_pre:
                    results.append(b"record %d" % seq)
                    self.written.add(seq)
                    del self.inputs[command.slot, self.row_of[seq]]
                elif isinstance(command, ev.Write):
                    results.append(b"meta %d" % seq)
                    self.written.add(seq)
                    if self.shape.opens and not self.tells:
                        shapes = self.shapes_of(seq)
                else:
                    results.append(b"record %d" % seq)
                    self.read.add(seq)
                    del self.outputs[command.slot, self.row_of[seq]]
        self.handle(ev.Replied(worker, command.ticket, 1000 * len(results), results, shapes))

    def die(self, worker: WorkerId, culprit: int = -1, *, hung: bool = False) -> None:
        """End a worker; `culprit` is what its line of the board says."""
        lost, self.held[worker] = self.held[worker], deque()
        self.up[worker] = False
        self.dying.discard(worker)
        self.streak[worker.role] += 1
        for ticket in lost:
            command = ticket.command
            if isinstance(command, ev.Run):
                if command.seq == culprit:
                    self._execution_failed(command, self._executed(command), hung=hung)
            elif culprit < 0 and ticket is lost[0]:
                for seq in command.seqs:
                    key = (f"{ticket.role} lost", seq)
                    self.deaths[key] = self.deaths.get(key, 0) + 1
                    if self.deaths[key] > LOSSES_SURVIVED:
                        self.deserved.add(seq)
                        self._gone(seq, command.slot, ticket.role)
            elif culprit in command.seqs:
                key = (ticket.role, culprit)
                self.deaths[key] = self.deaths.get(key, 0) + 1
                if self.deaths[key] > 1:
                    self.deserved.add(culprit)
                    self._gone(culprit, command.slot, ticket.role)
        cause = "exceeded its limit of 1 s" if hung else "killed by SIGKILL"
        self.handle(ev.WorkerExited(worker, cause, culprit, hung))

    # --- commands ---------------------------------------------------------------------------------

    def _pull(self, count: int) -> ev.Admitted:
        assert count >= 1
        assert not self.dry, "pulled from a source that has nothing"
        if self.to_seal:
            self.to_seal, self.dry = False, True
            return ev.Admitted([], ended=False, seal=True)
        left = self.total - self.admitted
        boundary = min((each for each in self.seals if each > self.admitted), default=self.total)
        taken = min(count, boundary - self.admitted)
        if self.bursts.random() < self.dry_chance:
            taken = self.bursts.randint(0, taken)
        start = self.shape.first + self.admitted
        shapes = [self.shapes_of(start + i) if self.tells else () for i in range(taken)]
        entries = [Entry(f"s{start + i}", b"p", shapes[i]) for i in range(taken)]
        self.admitted += taken
        ended = taken == left and (taken < count or self.bursts.random() < 0.5)
        seal = self.admitted in self.seals and taken > 0 and self.bursts.random() < 0.5
        self.to_seal = self.admitted in self.seals and taken > 0 and not seal and not ended
        self.dry = not ended and (not taken or (taken < count and not seal))
        return ev.Admitted(entries, ended, seal)

    def shapes_of(self, seq: int) -> tuple[tuple[int, ...], ...]:
        """Return the row shapes of an item: its source's where that tells them, or its own."""
        position = seq - self.shape.first
        between = sum(each <= position for each in self.seals)
        return ((1 + (between if self.tells else seq % 5), 2), (3,))

    def row(self, seq: int) -> int:
        """Return the row that an item must have where batches do not depend on the time."""
        position = seq - self.shape.first
        if self.shape.opens and not self.tells:
            return 0
        begin = max((each for each in self.seals if each <= position), default=0)
        return (position - begin) % self.shape.batch

    def _obey(self, command: Any) -> None:  # noqa: PLR0912, PLR0915 - one branch a command
        match command:
            case ev.Write(worker, _, slot, rows, seqs, payloads, shapes):
                self._take(worker, command)
                assert shapes == (self.shapes_of(seqs[0]) if self.tells else None)
                assert shapes is not None or not self.shape.opens or len(rows) == 1
                assert len(rows) == len(seqs) == len(payloads)
                assert slot < self.shape.depth
                for row, seq in zip(rows, seqs, strict=True):
                    assert row < self.shape.batch
                    assert self.row_of.setdefault(seq, row) == row, "an item changed its row"
                    assert self.shape.live or row == self.row(seq)
                    assert seq not in self.released
                    assert not self.tells or self.shapes_of(seq) == shapes
                    assert self.inputs.setdefault((slot, row), seq) == seq, "a row in use"
                for run in self._runs():
                    assert run.input_slot != slot, "written while a model reads it"
            case ev.Run(worker, _, slot, out, first, last, holes, _, shapes):
                self._take(worker, command)
                assert (shapes is not None) == self.shape.opens
                assert slot < self.shape.depth
                assert out < self.shape.depth
                for row in range(first, last):
                    seq = self.inputs.get((slot, row))
                    if row in holes:
                        assert seq is None, "a hole that holds an item"
                    else:
                        assert seq is not None, "an execution of a row that holds nothing"
                        assert seq in self.written, "executed before it was written"
                        assert self.outputs.setdefault((out, row), seq) == seq, "output in use"
                        assert shapes is None or shapes == self.shapes_of(seq)
            case ev.Read(worker, _, slot, rows, seqs, metas, made):
                if self.shape.ordered:
                    self._is_next(worker, seqs)
                self._take(worker, command)
                for seq in seqs:
                    assert made == (made_of(self.shapes_of(seq)) if self.shape.opens else None)
                for row, seq, meta in zip(rows, seqs, metas, strict=True):
                    assert self.outputs[slot, row] == seq
                    assert seq in self.computed, "read before it was computed"
                    assert meta == b"meta %d" % seq
            case ev.StartWorker(worker):
                assert not self.up[worker]
                if worker in self.unstarted:
                    others = [w for w in self.up if w.role == "infer" and w not in self.unstarted]
                    assert all(self.up[w] and len(self.held[w]) == 2 for w in others), "too early"
                    self.unstarted.remove(worker)
            case ev.ArmWait(seq):
                assert self.shape.live
                self.waits.append(seq)
            case ev.Release(seqs):
                assert self.shape.lends
                assert self.released.isdisjoint(seqs)
                assert len(set(seqs)) == len(seqs)
                assert self.written | self.failed >= set(seqs)
                self.released |= set(seqs)
            case ev.Emit(outcomes):
                assert outcomes
                for outcome in outcomes:
                    self._emitted(outcome)
            case ev.Abort(error):
                self.abort = error
            case _:
                raise AssertionError(command)

    def _is_next(self, worker: WorkerId, seqs: Any) -> None:
        held = [seq for ticket in self.held[worker] for seq in ticket.command.seqs]
        assert [*held, *seqs] == sorted({*held, *seqs}), "post goes back"
        before = set(range(self.shape.first, max(seqs)))
        assert before <= {*held, *seqs} | self.read | self.failed, "post goes ahead"

    def _take(self, worker: WorkerId, command: Any) -> None:
        assert self.up[worker], f"{worker} is given work while it is down"
        for tickets in self.held.values():
            for other in tickets:
                mine, its = command, other.command
                if type(mine) is type(its) and not isinstance(mine, ev.Run):
                    both = set(mine.rows) & set(its.rows)
                    assert mine.slot != its.slot or not both, "two tickets for one row"
                elif isinstance(mine, ev.Run) and isinstance(its, ev.Run):
                    apart = mine.last <= its.first or its.last <= mine.first
                    assert apart or mine.output_slot != its.output_slot
        self.held[worker].append(Ticket(command))
        assert len(self.held[worker]) <= 2

    def _emitted(self, outcome: Any) -> None:
        seq = outcome.index
        assert seq == self.shape.first + len(self.emitted), "out of order, twice or missing"
        assert len(self.emitted) < self.admitted
        self.emitted.append(outcome)
        if isinstance(outcome, Record):
            assert outcome.payload == b"record %d" % outcome.index
            assert seq not in self.failed
        else:
            assert seq in self.deserved, f"{outcome} is innocent"
        assert outcome.source == f"s{seq}"
        assert seq in self.released or not self.shape.lends

    # --- bookkeeping ------------------------------------------------------------------------------

    def _runs(self) -> list[ev.Run]:
        found = [t.command for tickets in self.held.values() for t in tickets]
        return [command for command in found if isinstance(command, ev.Run)]

    def _executed(self, command: ev.Run) -> list[int]:
        rows = [r for r in range(command.first, command.last) if r not in command.holes]
        return [self.inputs[command.input_slot, row] for row in rows]

    def _execution_failed(self, command: ev.Run, seqs: list[int], *, hung: bool = False) -> None:
        # The rule: an execution is tried twice as a whole; what is split off it, once. It is the
        # items' fault when there is only one of them, or when time ran out.
        key = ("infer", seqs[0])
        self.deaths[key] = self.deaths.get(key, 0) + 1
        if self.deaths[key] == 1 and not self.split.issuperset(seqs):
            return
        if len(seqs) > 1 and not hung:
            self.split.update(seqs)
            return
        for seq in seqs:
            self.deserved.add(seq)
            self._free_input(command.input_slot, seq)
            self.outputs.pop((command.output_slot, self.row_of[seq]), None)
            self.failed.add(seq)

    def _free_input(self, slot: int, seq: int) -> None:
        self.inputs.pop((slot, self.row_of[seq]), None)

    def _gone(self, seq: int, slot: int, role: str) -> None:
        self.failed.add(seq)
        memory = self.inputs if role == "pre" else self.outputs
        memory.pop((slot, self.row_of[seq]), None)

    def down(self) -> list[WorkerId]:
        """Return the workers whose process is being started."""
        gone = self.unstarted | self.dying
        return [worker for worker, up in self.up.items() if not up and worker not in gone]

    def finish(self, limit: int = 5000) -> None:
        """Let everything go well from here on; the run must come to its end."""
        for _ in range(limit):
            if self.abort is not None or self.state.finished:
                return
            down = self.down()
            busy = [worker for worker, tickets in self.held.items() if tickets]
            if self.dying:
                self.die(min(self.dying))
            elif down:
                self.ready(down[0])
            elif busy:
                self.reply(busy[0])
            elif self.dry:
                self.dry = False
                self.dry_chance = 0.0
                self.handle(ev.FeedReady())
            elif self.waits:
                self.handle(ev.WaitExpired(self.waits.pop()))
            else:
                raise AssertionError("the run stands still")
        raise AssertionError("the run does not end")


def made_of(shapes: Any) -> Any:
    """Return the row shapes of what a model makes of rows of these shapes."""
    return None if shapes is None else tuple((2, *shape) for shape in shapes)


class Runs(RuleBasedStateMachine):
    """Anything may happen, in any order."""

    @initialize(
        batch=st.integers(1, 6),
        depth=st.integers(1, 3),
        workers=st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)),
        total=st.integers(0, 60),
        first=st.sampled_from([0, 0, 7]),
        max_failures=st.sampled_from([None, None, None, 0, 2]),
        dry_chance=st.sampled_from([0.0, 0.0, 0.5, 1.0]),
        seed=st.integers(0, 2**16),
        eager=st.integers(1, 3),
        kind=st.sampled_from(["plain", "plain", "ordered", "only pre"]),
        shapes=st.sampled_from(["known", "known", "told", "chosen"]),
        seals=st.sampled_from([0, 0, 3, 10]),
        live=st.booleans(),
        lends=st.booleans(),
    )
    def begin(  # noqa: PLR0917 - drawn by name
        self, batch, depth, workers, total, first, max_failures, dry_chance, seed, eager,
        kind, shapes, seals, live, lends,
    ) -> None:  # fmt: skip
        rng = random.Random(seed)
        if kind == "only pre":
            counts, shapes = {"pre": workers[0]}, "known"
        else:
            counts = dict(zip(NAMES, workers, strict=True))
        if kind == "ordered":
            counts["post"] = 1
        shape = RunShape(
            batch=batch,
            depth=depth,
            workers=counts,
            names=NAMES,
            unstarted=[WorkerId("infer", index) for index in range(eager, counts.get("infer", 0))],
            first=first,
            max_failures=max_failures,
            live=live,
            lends=lends,
            opens=shapes != "known",
            ordered=kind == "ordered",
        )
        whole = {rng.randint(1, total) for _ in range(seals)} if total else set()
        self.world = World(shape, total, rng, dry_chance, whole, tells=shapes == "told")

    def _workers(self, state: str) -> list[WorkerId]:
        world = self.world
        if world.abort is not None:
            return []
        return {
            "down": world.down(),
            "up": [w for w, up in world.up.items() if up],
            "busy": [w for w, held in world.held.items() if held and w not in world.dying],
            "dying": sorted(world.dying),
        }[state]

    @precondition(lambda self: self._workers("down"))
    @rule(data=st.data())
    def worker_becomes_ready(self, data) -> None:
        self.world.ready(data.draw(st.sampled_from(self._workers("down"))))

    @precondition(lambda self: self._workers("busy"))
    @rule(data=st.data(), count=st.integers(1, 6))
    def workers_finish_tickets(self, data, count) -> None:
        for _ in range(count):
            if busy := self._workers("busy"):
                self.world.reply(data.draw(st.sampled_from(busy)))

    @precondition(lambda self: self._workers("busy"))
    @rule(data=st.data())
    def worker_finishes_with_faults(self, data) -> None:
        worker = data.draw(st.sampled_from(self._workers("busy")))
        command = self.world.held[worker][0].command
        if isinstance(command, ev.Run):
            self.world.reply(worker, fails=True, fatal=data.draw(st.booleans()))
        else:
            self.world.reply(worker, data.draw(st.sets(st.sampled_from(list(command.seqs)))))

    @precondition(lambda self: self._workers("dying"))
    @rule(data=st.data())
    def worker_whose_device_is_lost_ends(self, data) -> None:
        self.world.die(data.draw(st.sampled_from(self._workers("dying"))))

    @precondition(lambda self: self._workers("up"))
    @rule(data=st.data())
    def worker_dies(self, data) -> None:
        self.world.die(data.draw(st.sampled_from(self._workers("up"))))

    @precondition(lambda self: self._workers("busy"))
    @rule(data=st.data(), hung=st.booleans())
    def worker_dies_of_an_item(self, data, hung) -> None:
        worker = data.draw(st.sampled_from(self._workers("busy")))
        command = self.world.held[worker][0].command
        if isinstance(command, ev.Run):
            culprit = command.seq
        else:
            culprit = data.draw(st.sampled_from(list(command.seqs)))
        self.world.die(worker, culprit, hung=hung)

    @precondition(lambda self: self.world.abort is None and self.world.dry)
    @rule()
    def source_has_something(self) -> None:
        self.world.dry = False
        self.world.handle(ev.FeedReady())

    @precondition(lambda self: self.world.abort is None and self.world.waits)
    @rule(data=st.data())
    def wait_expires(self, data) -> None:
        at = data.draw(st.integers(0, len(self.world.waits) - 1))
        self.world.handle(ev.WaitExpired(self.world.waits.pop(at)))

    @precondition(lambda self: self.world.abort is not None)
    @rule()
    def nothing_follows_the_end(self) -> None:
        assert self.world.state.handle(ev.WorkerReady(WorkerId("pre", 0))) == []

    @invariant()
    def memory_is_bounded(self) -> None:
        world, shape = self.world, self.world.shape
        assert all(used <= shape.depth for used in world.state.slots_used())
        on_the_way = world.admitted - len(world.emitted)
        assert on_the_way <= (2 * shape.depth + 3) * shape.batch

    @invariant()
    def numbers_add_up(self) -> None:
        state = self.world.state
        if self.world.abort is None:
            assert state.done + state.failed == len(self.world.emitted)
            assert not state.finished or len(self.world.emitted) == self.world.total

    @invariant()
    def run_is_aborted_for_a_reason_only(self) -> None:
        world = self.world
        match world.abort:
            case None:
                return
            case StageError():
                assert world.shape.max_failures is not None
                assert world.state.failed == world.shape.max_failures + 1
                assert not isinstance(world.emitted[-1], Record)
            case WorkerError():
                assert any(world.streak[role] >= DEATHS_IN_A_ROW[role] for role in NAMES)
            case BackendError():
                assert world.streak["infer"] >= 16
            case other:
                raise AssertionError(other)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()
            if self.world.abort is None:
                assert self.world.state.finished
                assert len(self.world.emitted) == self.world.total
                assert len(self.world.released) == self.world.shape.lends * self.world.total
                assert self.world.state.slots_used() == (0, 0)
                assert not any(self.world.held.values())


TestRuns = Runs.TestCase
TestRuns.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@settings(max_examples=80)
@given(
    batch=st.integers(1, 6),
    depth=st.integers(1, 3),
    workers=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2)),
    total=st.integers(1, 30),
    killers=st.sets(st.integers(0, 29), max_size=3),
    role=st.sampled_from(list(NAMES)),
    dies=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_exactly_the_killers_are_set_aside(  # noqa: PLR0917 - drawn by name
    batch, depth, workers, total, killers, role, dies, seed
) -> None:
    killers = {each for each in killers if each < total}
    shape = RunShape(batch, depth, dict(zip(NAMES, workers, strict=True)), NAMES)
    rng = random.Random(seed)
    world = World(shape, total, rng)
    for worker in world.up:
        world.ready(worker)

    for _ in range(5000):
        if world.state.finished:
            break
        down = [worker for worker, up in world.up.items() if not up]
        busy = [worker for worker, tickets in world.held.items() if tickets]
        if down and (not busy or rng.random() < 0.5):
            world.ready(rng.choice(down))
            continue
        if not busy:
            break
        worker = rng.choice(busy)
        command = world.held[worker][0].command
        run = isinstance(command, ev.Run)
        seqs = world._executed(command) if run else list(command.seqs)
        hit = [seq for seq in seqs if seq in killers] if worker.role == role else []
        if not hit:
            world.reply(worker)
        elif run and dies:
            world.die(worker, command.seq)
        elif run:
            world.reply(worker, fails=True)
        else:
            world.die(worker, hit[0])

    assert world.state.finished
    failed = {each.index for each in world.emitted if not isinstance(each, Record)}
    assert failed == killers
    assert len(world.emitted) == total


@settings(max_examples=80)
@given(
    batch=st.integers(1, 6),
    depth=st.integers(1, 3),
    workers=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2)),
    total=st.integers(1, 40),
    seed=st.integers(0, 2**32),
)
def test_deaths_without_a_culprit_harm_no_item(batch, depth, workers, total, seed) -> None:
    shape = RunShape(batch, depth, dict(zip(NAMES, workers, strict=True)), NAMES)
    rng = random.Random(seed)
    world = World(shape, total, rng)

    for _ in range(20 * total):
        if world.state.finished:
            break
        down = [worker for worker, up in world.up.items() if not up]
        up = [worker for worker, up in world.up.items() if up]
        busy = [worker for worker, tickets in world.held.items() if tickets]
        if down and rng.random() < 0.6:
            world.ready(rng.choice(down))
        elif busy and rng.random() < 0.8:
            world.reply(rng.choice(busy))
        elif up and max(world.streak.values()) < 20:
            world.die(rng.choice(up))
    world.finish()

    assert len(world.emitted) == total
    assert all(isinstance(each, Record) for each in world.emitted)


@settings(max_examples=150)
@given(
    batch=st.integers(1, 3),
    depth=st.integers(1, 3),
    workers=st.tuples(st.integers(1, 4), st.integers(1, 3)),
    total=st.integers(10, 40),
    killers=st.sets(st.integers(0, 39), max_size=3),
    seed=st.integers(0, 2**32),
)
def test_post_in_input_order_never_stands_still(  # noqa: PLR0917 - drawn by name
    batch, depth, workers, total, killers, seed
) -> None:
    counts = {"pre": workers[0], "infer": workers[1], "post": 1}
    rng = random.Random(seed)
    world = World(RunShape(batch, depth, counts, NAMES, ordered=True), total, rng)
    for worker in world.up:
        world.ready(worker)
    slow = WorkerId("pre", 0)  # what it holds is passed by all that others hold

    for _ in range(5000):
        if world.state.finished:
            break
        for worker in world.down():
            world.ready(worker)
        busy = [worker for worker, tickets in world.held.items() if tickets]
        worker = rng.choice([each for each in busy if each != slow] or busy)
        command = world.held[worker][0].command
        hit = killers.intersection(getattr(command, "seqs", ()))
        if hit and rng.random() < 0.8:
            world.die(worker, min(hit))
        else:
            world.reply(worker)

    assert world.state.finished
    assert len(world.emitted) == total
