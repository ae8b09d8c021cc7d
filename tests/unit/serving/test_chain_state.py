"""What a service of several models decides in situations that matter."""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from typing import Any

import pytest

from gepipe.io.failures import Failure
from gepipe.serving import chainstate
from gepipe.serving.chainevents import Hold, Submit, Told, Withdraw
from gepipe.serving.chainstate import ChainState
from gepipe.serving.events import Answer, Arrived, Cancelled, Refusal

WIDE, NARROW = ((3, 48, 128),), ((3, 48, 64),)


def of(kind: type[Any], commands: Sequence[Any]) -> list[Any]:
    return [command for command in commands if isinstance(command, kind)]


def split(*parts: tuple[bytes, Any], head: bytes = b"head") -> bytes:
    return marshal.dumps((head, list(parts)))


def arrived(state: ChainState, seq: int = 0, **more: Any) -> Submit:
    """Have an item arrive; return what the first leg is given."""
    (submit,) = of(Submit, state.handle(Arrived(seq, b"payload", **more)))
    return submit


def in_parts(state: ChainState, *parts: tuple[bytes, Any], **more: Any) -> list[Submit]:
    """Have an item arrive and be split; return its parts."""
    first = arrived(state, **more)
    return of(Submit, state.handle(Told(first.key, split(*parts), "where")))


def test_parts_go_to_the_next_model_with_their_items_class_deadline_and_shapes():
    state = ChainState([False], "pre")

    parts = in_parts(state, (b"a", WIDE), (b"b", NARROW), (b"c", WIDE), realtime=True, deadline=7.0)

    assert [(each.leg, each.payload, each.shapes) for each in parts] == [
        (1, ("where", b"a"), WIDE),
        (1, ("where", b"c"), WIDE),
        (1, ("where", b"b"), NARROW),
    ]
    assert {(each.seq, each.realtime, each.deadline) for each in parts} == {(0, True, 7.0)}


def test_an_item_is_joined_when_its_last_part_is_known_and_parts_are_in_order():
    state = ChainState([False], "pre")
    one, two = in_parts(state, (b"a", ()), (b"b", ()))

    assert state.handle(Told(two.key, b"2")) == []
    (join,) = of(Submit, state.handle(Told(one.key, Failure(9, "", "read", "broken", "why"))))
    (answer,) = of(Answer, state.handle(Told(join.key, b"{}")))

    parts = ((b"a", ("read", "broken", "why")), (b"b", b"2"))
    assert (join.leg, join.payload) == (2, (None, (b"head", parts)))
    assert answer == Answer(0, b"{}")
    assert (state.done, len(state), state.behind) == (1, 0, 0)


def test_an_item_without_parts_is_joined_at_once():
    (join,) = in_parts(ChainState([False], "pre"))

    assert (join.leg, join.payload) == (2, (None, (b"head", ())))


def test_the_failure_of_a_single_part_is_the_items():
    state = ChainState([True], "pre")
    (part,) = in_parts(state, (b"a", ()), seq=4)

    commands = state.handle(Told(part.key, Failure(0, "", "read", "broken", "why")))

    assert commands == [Answer(4, Failure(4, "", "read", "broken", "why"))]
    assert state.failures == {"broken": 1}


def test_an_item_fails_with_its_first_model():
    state = ChainState([False], "pre")
    first = arrived(state, 3)

    commands = state.handle(Told(first.key, Failure(0, "", "pre", "empty", "why"), "where"))

    assert commands == [Answer(3, Failure(3, "", "pre", "empty", "why"))]


@pytest.mark.parametrize("kind", ["expired", "unavailable"])
def test_a_part_that_the_service_gave_up_ends_its_item_and_withdraws_the_others(kind):
    state = ChainState([False], "pre")
    one, two, three = in_parts(state, (b"a", ()), (b"b", ()), (b"c", ()))
    state.handle(Told(one.key, b"1"))

    commands = state.handle(Told(two.key, Refusal(8, "", "cut", kind, "over")))

    assert commands == [Withdraw(three.key), Answer(0, Refusal(0, "", "cut", kind, "over"))]
    late = state.handle(Told(three.key, Refusal(9, "", "cut", "cancelled", "late")))
    assert late == []


def test_a_worker_may_call_its_failure_as_it_likes():
    state = ChainState([False], "pre")
    (part,) = in_parts(state, (b"a", ()))

    (join,) = state.handle(Told(part.key, Failure(0, "", "cut", "expired", "its date is over")))

    assert join.payload[1][1] == ((b"a", ("cut", "expired", "its date is over")),)


def test_a_cancelled_item_lets_go_of_everything_wherever_it_is():
    state = ChainState([False], "pre")
    first = arrived(state, 0)
    parts = in_parts(state, (b"a", ()), (b"b", ()), seq=1)
    (join,) = in_parts(state, seq=2)

    for seq, held in ((0, [first]), (1, parts), (2, [join])):
        *withdrawn, answer = state.handle(Cancelled(seq))
        assert withdrawn == [Withdraw(each.key) for each in held]
        assert answer.result.kind == "cancelled"
        assert state.handle(Cancelled(seq)) == []
    assert state.handle(Told(first.key, split((b"z", ())), "where")) == []
    assert (len(state), state.behind) == (0, 0)


def test_the_first_leg_is_held_back_while_there_are_many_parts(monkeypatch):
    monkeypatch.setattr(chainstate, "PARTS", 3)
    state = ChainState([False], "pre")
    first = arrived(state)

    commands = state.handle(Told(first.key, split(*[(b"f", ())] * 4), "where"))
    parts = of(Submit, commands)
    holds = [of(Hold, state.handle(Told(each.key, b"r"))) for each in parts]

    assert of(Hold, commands) == [Hold(0, on=True)]
    assert holds == [[], [Hold(0, on=False)], [], []]


def test_the_first_leg_is_held_back_while_there_are_many_bytes(monkeypatch):
    monkeypatch.setattr(chainstate, "NBYTES", 1000)
    state = ChainState([False], "pre")
    (one,) = of(Submit, state.handle(Arrived(0, b"x" * 400)))
    (two,) = of(Submit, state.handle(Arrived(1, b"x" * 300)))
    state.handle(Told(one.key, split(), "where"))
    (part,) = of(Submit, state.handle(Told(two.key, split((b"f" * 100, ())), "where")))

    (hold, join) = sorted(state.handle(Told(part.key, b"r" * 300)), key=repr)
    commands = state.handle(Told(join.key, b"{}"))

    assert hold == Hold(0, on=True)
    assert Hold(0, on=False) in commands


def test_a_leg_in_the_middle_is_held_back_by_what_is_behind_it_alone(monkeypatch):
    monkeypatch.setattr(chainstate, "PARTS", 3)
    state = ChainState([False, False], "pre")
    parts = in_parts(state, (b"a", ()), (b"b", ()))

    commands = state.handle(Told(parts[0].key, split(*[(b"f", ())] * 3)))
    nested = of(Submit, commands)

    assert of(Hold, commands) == [Hold(0, on=True), Hold(1, on=True)]
    assert [(each.leg, each.payload) for each in nested] == [(2, (("where", b"a"), b"f"))] * 3
    holds = of(Hold, state.handle(Told(nested[0].key, b"r")))
    assert holds == [Hold(1, on=False)]
