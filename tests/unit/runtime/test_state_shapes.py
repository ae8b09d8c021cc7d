"""What the state of a run does with row shapes, seals and odd orders, in so many words."""

from __future__ import annotations

import pytest

from gepipe.errors import InternalError
from gepipe.io.source import Entry
from gepipe.runtime.events import (
    Admitted,
    ArmWait,
    Emit,
    Fault,
    FeedReady,
    Pull,
    Read,
    Replied,
    Run,
    WorkerId,
    WorkerReady,
    Write,
)
from gepipe.runtime.options import RunShape
from gepipe.runtime.state import RunState

NAMES = {"pre": "preprocess", "infer": "inference", "post": "postprocess"}
WORKERS = [WorkerId(role, 0) for role in NAMES]
WIDE, NARROW = ((3, 40),), ((3, 20),)


def begun(**more) -> tuple[RunState, Pull]:
    """Return a run of batches of four whose workers are ready, and what it asks for first."""
    shape = RunShape(4, 2, dict.fromkeys(NAMES, 1), NAMES, **more)
    state = RunState(shape)
    pulls = [c for worker in WORKERS for c in state.handle(WorkerReady(worker))]
    (pull,) = (c for c in pulls if isinstance(c, Pull))
    return state, pull


def items(*shapes) -> list[Entry]:
    return [Entry(f"item {at}", b"", each) for at, each in enumerate(shapes)]


def only(commands, kind):
    (found,) = (c for c in commands if isinstance(c, kind))
    return found


def through_pre(state: RunState, commands: list, **more) -> list:
    """Answer all tickets of pre; return what follows the last answer."""
    while writes := [c for c in commands if isinstance(c, Write)]:
        commands = [c for c in commands if not isinstance(c, Write)]
        for write in writes:
            results = [b"meta"] * len(write.rows)
            commands += state.handle(Replied(write.worker, write.ticket, 1, results, **more))
    return commands


def test_row_of_unknown_shape_is_a_batch_of_its_own_and_its_shape_goes_all_the_way() -> None:
    state, pull = begun(opens=True)
    assert pull.count == 1

    commands = state.handle(Admitted(items(()), ended=True))
    assert only(commands, Write).shapes is None
    run = only(through_pre(state, commands, shapes=WIDE), Run)
    assert (run.first, run.last, run.shapes) == (0, 1, WIDE)
    read = only(state.handle(Replied(run.worker, run.ticket, 1, [b""], ((7,),))), Read)
    assert read.made == ((7,),)


def test_rows_of_known_shapes_share_a_batch_until_it_is_sealed() -> None:
    state, _ = begun(opens=True)

    commands = state.handle(Admitted(items(WIDE), ended=False))
    assert only(commands, Pull).count == 3
    commands += state.handle(Admitted(items(WIDE), ended=False, seal=True))
    assert [c.count for c in commands if isinstance(c, Pull)] == [3, 4]
    commands += state.handle(Admitted(items(NARROW), ended=True))

    writes = [c for c in commands if isinstance(c, Write)]
    assert {write.shapes for write in writes} == {WIDE}
    runs = [c for c in through_pre(state, commands) if isinstance(c, Run)]
    assert [(r.last, r.shapes) for r in runs] == [(2, WIDE), (1, NARROW)]


@pytest.mark.parametrize("second", [NARROW, ()])
def test_rows_of_different_shapes_do_not_get_into_one_batch(second) -> None:
    state, _ = begun(opens=True)
    state.handle(Admitted(items(WIDE), ended=False))

    with pytest.raises(InternalError, match="different shapes in one batch"):
        state.handle(Admitted(items(second), ended=False))


def test_shapes_of_rows_that_the_layout_knows_are_its_own() -> None:
    state, _ = begun()

    commands = state.handle(Admitted(items(WIDE, NARROW), ended=True))

    assert {c.shapes for c in commands if isinstance(c, Write)} == {None}


def test_halves_of_a_batch_that_come_out_at_different_shapes_are_set_aside() -> None:
    """Rows lie one behind the other at their own shape, so that the second half hit the first."""
    state, _ = begun()
    run = only(through_pre(state, state.handle(Admitted(items((), ()), ended=True))), Run)
    for _ in range(2):
        (again, *others) = (
            c
            for c in state.handle(
                Replied(run.worker, run.ticket, 1, [Fault("RuntimeError", "refused")])
            )
            if isinstance(c, Run)
        )
        run = again
    (other,) = others
    state.handle(Replied(run.worker, run.ticket, 1, [b""], ((5,),)))
    emit = only(state.handle(Replied(other.worker, other.ticket, 1, [b""], ((6,),))), Emit)

    assert [(f.stage, f.kind) for f in emit.outcomes] == [("inference", "shape")] * 2
    assert "rows of ((5,),) and of ((6,),) in one batch; use batch_size: 1" in (
        emit.outcomes[0].error
    )
    assert state.finished
    assert state.slots_used() == (0, 0)


def test_seal_without_items_closes_what_came_before_it_and_waits() -> None:
    state, _ = begun()
    state.handle(Admitted(items((), ()), ended=False))
    commands = state.handle(FeedReady())
    assert only(commands, Pull).count == 2

    state.handle(Admitted([], ended=False, seal=True))
    assert only(state.handle(FeedReady()), Pull).count == 4

    assert not any(isinstance(c, Pull) for c in state.handle(Admitted([], False, seal=True)))


@pytest.mark.parametrize("live", [True, False])
def test_only_a_live_source_is_waited_for_no_longer_than_a_while(live) -> None:
    state, _ = begun(live=live)

    commands = state.handle(Admitted(items(()), ended=False))

    assert any(isinstance(c, ArmWait) for c in commands) == live


def test_input_order_needs_one_worker_of_post() -> None:
    workers = {"pre": 1, "infer": 1, "post": 2}
    with pytest.raises(InternalError, match="2 workers of post"):
        RunState(RunShape(4, 2, workers, NAMES, ordered=True))
