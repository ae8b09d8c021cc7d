"""The state of a service of several models against a model that knows what became of each part."""

from __future__ import annotations

import marshal
import sys
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gepipe.io.failures import Failure
from gepipe.pipeline.fan import is_broken
from gepipe.serving import chainstate
from gepipe.serving.chainevents import Hold, Submit, Told, Withdraw
from gepipe.serving.chainstate import ChainState
from gepipe.serving.events import Answer, Arrived, Cancelled, Drain, Refusal

#: A bound on parts that the random ones meet.
PARTS = 6
SHAPES = [(), ((3, 48, 64),), ((3, 48, 128),)]


@dataclass
class Node:
    """An item, or a part of one, as it should come out."""

    parts: list[Node] = field(default_factory=list)
    facts: bytes = b""
    record: Any = None  # bytes, or why it failed; of what was split nothing


class Chains(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patched = chainstate.PARTS
        chainstate.PARTS = PARTS

    def teardown(self) -> None:
        try:
            self.finish()
        finally:
            chainstate.PARTS = self.patched

    @initialize(singles=st.lists(st.booleans(), min_size=1, max_size=3))
    def begin(self, singles: list[bool]) -> None:
        self.singles = singles
        self.state = ChainState(singles, "first")
        self.items: dict[int, Node] = {}
        self.wishes: dict[int, tuple[bool, float]] = {}
        self.nodes: dict[int, Node] = {}  # of what was submitted, by key
        self.pending: dict[int, Submit] = {}
        self.answers: dict[int, Any] = {}
        self.withdrawn: set[int] = set()
        self.held = [False] * len(singles)
        self.draining = False
        self.names = 0

    # --- what may happen --------------------------------------------------------------------------

    @rule(realtime=st.booleans(), deadline=st.sampled_from([5.0, float("inf")]))
    def arrive(self, realtime: bool, deadline: float) -> None:
        seq = len(self.items)
        self.items[seq] = Node()
        self.wishes[seq] = realtime, deadline
        self.handle(Arrived(seq, b"x" * 10, realtime, deadline))
        if self.draining:
            assert self.answers[seq].kind == "unavailable"

    @precondition(lambda self: self.items)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(sorted(self.items)))
        before = self.answers.get(seq)
        self.handle(Cancelled(seq))
        if before is None:
            assert self.answers[seq] == Refusal(
                seq, "", "first", "cancelled", "the request was cancelled"
            )

    @precondition(lambda self: len(self.items) > 6)
    @rule()
    def drain(self) -> None:
        self.draining = True
        self.handle(Drain())

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), count=st.integers(0, 4), fate=st.sampled_from("ggggggfr"))
    def answer(self, data: st.DataObject, count: int, fate: str) -> None:
        key = data.draw(st.sampled_from(sorted(self.pending)))
        self.tell(key, count, fate, data.draw(st.lists(st.sampled_from(SHAPES), min_size=4)))

    def tell(self, key: int, count: int, fate: str, shapes: list[Any]) -> None:
        submit, node = self.pending.pop(key), self.nodes[key]
        join = submit.leg == len(self.singles) + 1
        payload = ("where", submit.seq) if not submit.leg else None
        before = self.answers.get(submit.seq)
        if fate in "fr":
            why = ("stage", "kind", f"{key}")
            kind = Failure if fate == "f" else Refusal
            node.record = why
            self.handle(Told(key, kind(999, "", *why), payload))
            whole = fate == "r" or join or not submit.leg
            if whole and before is None:
                assert self.answers[submit.seq] == kind(submit.seq, "", *why)
        elif join:
            self.handle(Told(key, b"record %d" % submit.seq))
            assert before is not None or self.answers[submit.seq] == b"record %d" % submit.seq
        elif submit.leg == len(self.singles):
            node.record = b"part %d" % key
            self.handle(Told(key, node.record))
        else:
            count = 1 if self.singles[submit.leg] else count
            for _ in range(count):
                self.names += 1
                node.parts.append(Node(facts=b"f%d" % self.names))
            parts = [(p.facts, shapes[i % len(shapes)]) for i, p in enumerate(node.parts)]
            self.shapes = dict(parts)
            self.handle(Told(key, marshal.dumps((b"head" + node.facts, parts)), payload))

    # --- what is done about it --------------------------------------------------------------------

    def handle(self, event: Any) -> None:
        for command in self.state.handle(event):
            match command:
                case Submit(leg, key, seq, payload, shapes, realtime, deadline):
                    assert seq not in self.answers, "work for nobody"
                    assert key not in self.nodes
                    assert (realtime, deadline) == self.wishes[seq]
                    self.pending[key] = command
                    self.nodes[key] = self.node_of(leg, seq, payload, shapes)
                case Withdraw(key):
                    assert key in self.pending
                    self.withdrawn.add(key)
                case Hold(leg, on):
                    assert self.held[leg] is not on
                    self.held[leg] = on
                case Answer(seq, result):
                    assert seq not in self.answers, "answered twice"
                    self.answers[seq] = result
                case _:
                    raise AssertionError(command)

    def node_of(self, leg: int, seq: int, payload: Any, shapes: Any) -> Node:
        """Return what is submitted; what it is given must be right."""
        item = self.items[seq]
        if not leg:
            assert payload == b"x" * 10
            return item
        if leg == len(self.singles) + 1:
            where, gathered = payload
            assert where is None
            assert not is_broken(gathered)
            assert gathered == self.settled(item, 0)
            return item
        where, facts = payload
        for _ in range(leg - 1):
            where = where[0]
        assert where == ("where", seq)
        assert shapes == self.shapes[facts]
        (found,) = (node for node in self.all_of(item) if node.facts == facts)
        return found

    def settled(self, node: Node, depth: int) -> Any:
        """Return a node with its parts, where a single part's failure is its own."""
        if node.record is not None:
            return node.record
        parts = tuple((each.facts, self.settled(each, depth + 1)) for each in node.parts)
        if self.singles[depth] and is_broken(parts[0][1]):
            return parts[0][1]
        return b"head" + node.facts, parts

    def all_of(self, node: Node) -> list[Node]:
        return [node, *(found for part in node.parts for found in self.all_of(part))]

    # --- what must hold ---------------------------------------------------------------------------

    @invariant()
    def parts_are_bounded(self) -> None:
        if not hasattr(self, "state"):
            return
        for leg, held in enumerate(self.held):
            parts = sum(fan.parts for fan in self.state._fans[leg:])
            assert held is (parts >= PARTS or (leg == 0 and self.state.behind >= PARTS))

    def finish(self) -> None:
        if not hasattr(self, "state"):
            return
        for _ in range(10_000):
            if not self.pending:
                break
            # What is held back does not go on; there must be something else.
            going = [k for k, s in self.pending.items() if s.leg >= len(self.held) or
                     not self.held[s.leg] or k in self.withdrawn]  # fmt: skip
            assert going, "nothing goes on"
            self.tell(going[0], 2, "g", [()])
        assert sorted(self.answers) == sorted(self.items)
        assert not self.state._ways
        assert [(f.items, f.parts, f.nbytes) for f in self.state._fans] == [
            (0, 0, 0) for _ in self.singles
        ]
        assert (len(self.state), self.state.behind, self.state._nbytes) == (0, 0, 0)
        good = sum(isinstance(answer, bytes) for answer in self.answers.values())
        assert self.state.done == good
        assert sum(self.state.failures.values()) == len(self.items) - good


TestChains = Chains.TestCase
TestChains.settings = settings(
    max_examples=300 if "--thorough" in sys.argv else 100,
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
