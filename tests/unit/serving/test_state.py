"""What a service decides in situations that the property tests meet by chance only."""

from __future__ import annotations

import math

import pytest

from gepipe.errors import BackendError
from gepipe.io.failures import Failure
from gepipe.runtime import events as ev
from gepipe.runtime.events import Fault, WorkerId
from gepipe.serving.events import Answer, Arrived, Cancelled, Drain, Held, Refusal, WakeAt
from gepipe.serving.shape import ServingShape
from gepipe.serving.state import ServingState

NAMES = {"pre": "preprocess", "infer": "inference", "post": "postprocess"}
PRE, INFER, POST = (WorkerId(role, 0) for role in ("pre", "infer", "post"))


def state(*, batch=2, depth=3, pre=1, infer=1, queue=3, ready=True, **more) -> ServingState:
    made = ServingState(
        ServingShape(
            batch, depth, {"pre": pre, "infer": infer, "post": 1}, NAMES, queue=queue, **more
        )
    )
    if ready:
        workers = [WorkerId("pre", n) for n in range(pre)]
        workers += [WorkerId("infer", n) for n in range(infer)]
        made.handle(0.0, [ev.WorkerReady(worker) for worker in (*workers, POST)])
    return made


def of(kind, commands):
    return [command for command in commands if isinstance(command, kind)]


def written(made, write, now=0.0):
    return made.handle(
        now, [ev.Replied(write.worker, write.ticket, 1000, [b"m"] * len(write.rows))]
    )


def test_items_that_come_together_are_refused_only_if_workers_cannot_take_them():
    made = state(queue=3, pre=2)

    commands = made.handle(0.0, [Arrived(seq, b"") for seq in range(10)])

    dealt = [seq for write in of(ev.Write, commands) for seq in write.seqs]
    refused = {each.seq for each in of(Answer, commands)}
    assert dealt == [0, 1, 2, 3]
    assert refused == {7, 8, 9}
    assert {each.result.kind for each in of(Answer, commands)} == {"overloaded"}


def test_each_class_has_a_queue_of_its_own():
    made = state(queue=1, ready=False)

    made.handle(0.0, [Arrived(0, b""), Arrived(1, b"", realtime=True)])
    answers = of(Answer, made.handle(0.0, [Arrived(2, b""), Arrived(3, b"", realtime=True)]))

    assert [(each.seq, each.result.kind) for each in answers] == [
        (2, "overloaded"),
        (3, "overloaded"),
    ]


def test_cancelled_items_make_room():
    made = state(queue=1, ready=False)

    made.handle(0.0, [Arrived(0, b""), Cancelled(0)])

    assert not of(Answer, made.handle(0.0, [Arrived(1, b"")]))


def test_deadlines_are_looked_at_in_time():
    made = state(ready=False)

    (wake,) = made.handle(0.0, [Arrived(0, b"", deadline=2.0), Arrived(1, b"", deadline=1.0)])
    assert wake == WakeAt(1.0)
    answer, wake = made.handle(1.0)
    assert (answer.seq, answer.result.kind) == (1, "expired")
    assert wake == WakeAt(2.0)
    assert made.handle(1.5, [Cancelled(0)])[-1] == WakeAt(math.inf)


def test_an_item_that_is_cancelled_in_work_is_not_executed():
    made = state()
    (write, *_) = of(ev.Write, made.handle(0.0, [Arrived(0, b"")]))

    (answer,) = of(Answer, made.handle(0.0, [Cancelled(0)]))
    commands = written(made, write)

    assert answer.result.kind == "cancelled"
    assert not of(ev.Run, commands)
    assert made.slots_used() == (0, 0)


def test_a_realtime_batch_overtakes_bulk_that_is_ready():
    made = state(pre=4, depth=4)
    writes = of(ev.Write, made.handle(0.0, [Arrived(seq, b"") for seq in range(6)]))
    commands = [c for write in writes for c in written(made, write)]
    assert len(of(ev.Run, commands)) == 2  # nothing is learnt yet: the second goes at once
    first = of(ev.Run, commands)[0]

    (write,) = of(ev.Write, made.handle(0.0, [Arrived(9, b"", realtime=True)]))
    assert not of(ev.Run, written(made, write))
    commands = made.handle(0.1, [ev.Replied(INFER, first.ticket, 100_000_000, [b""])])
    assert not of(ev.Run, commands)
    (wake,) = of(WakeAt, commands)
    (run,) = of(ev.Run, made.handle(wake.time))

    assert wake.time == pytest.approx(0.1 + 0.1 - 0.001)
    assert run.seq == 9


def test_a_failed_execution_is_tried_elsewhere_then_halved():
    made = state(infer=2, batch=4, pre=4)
    writes = of(ev.Write, made.handle(0.0, [Arrived(seq, b"") for seq in range(4)]))
    runs = [run for write in writes for run in of(ev.Run, written(made, write))]
    tried, failed = [], []
    while runs:
        run = runs.pop(0)
        tried.append((run.worker.index, run.last - run.first))
        bad = run.first <= 2 < run.last
        result = Fault("RuntimeError", "refused") if bad else b""
        commands = made.handle(0.0, [ev.Replied(run.worker, run.ticket, 1000, [result])])
        runs += of(ev.Run, commands)
        failed += [each.seq for each in of(Answer, commands) if isinstance(each.result, Failure)]

    assert failed == [2]
    assert tried[0][0] != tried[1][0]
    assert [rows for _, rows in tried[:2]] == [tried[0][1]] * 2
    assert sum(rows == 1 for _, rows in tried) >= 1


def test_draining_takes_nothing_more_and_finishes_the_rest():
    made = state()
    (write, *_) = of(ev.Write, made.handle(0.0, [Arrived(0, b"")]))

    (late,) = of(Answer, made.handle(0.0, [Drain(), Arrived(1, b"")]))
    assert late.result == Refusal(1, "", "preprocess", "unavailable", "the service is stopping")
    assert len(made.backlog) == 1
    (run,) = of(ev.Run, written(made, write))
    (read,) = of(ev.Read, made.handle(0.0, [ev.Replied(INFER, run.ticket, 1000, [b""])]))
    (answer,) = of(Answer, made.handle(0.0, [ev.Replied(POST, read.ticket, 1000, [b"{}"])]))

    assert answer == Answer(0, b"{}")
    assert not len(made.backlog)


def test_the_loss_of_the_last_device_ends_the_service():
    made = state(infer=2)
    made.handle(0.0, [Arrived(0, b"")])
    lost = BackendError("no device")

    assert not of(ev.Abort, made.handle(0.0, [ev.WorkerLost(WorkerId("infer", 1), lost)]))
    commands = made.handle(0.0, [ev.WorkerLost(INFER, lost)])

    assert of(ev.Abort, commands) == [ev.Abort(lost)]
    assert [each.result.kind for each in of(Answer, commands)] == ["unavailable"]
    (late,) = of(Answer, made.handle(0.0, [Arrived(1, b"")]))
    assert late.result.error == "the service has ended: no device"


def test_workers_that_die_in_a_row_do_not_end_the_service():
    made = state(queue=10_000)
    made.handle(0.0, [Arrived(seq, b"") for seq in range(300)])

    for seq in range(300):
        for _ in range(2):
            commands = made.handle(0.0, [ev.WorkerExited(PRE, "killed", seq)])
            assert not of(ev.Abort, commands)
            made.handle(0.0, [ev.WorkerReady(PRE)])

    assert made.backlog.failures == {"crash": 300}


def test_an_item_whose_workers_end_on_nobody_knows_what_is_given_up_alone():
    made = state()
    commands = made.handle(0.0, [Arrived(seq, b"") for seq in range(3)])
    answers = {}
    deaths = 0
    while writes := of(ev.Write, commands):
        (holding, *lost) = writes  # what else it held is lost with it
        if 1 in holding.seqs:  # its operator closes the channel: done, but nobody is told
            deaths += 1
            commands = made.handle(0.0, [ev.WorkerExited(PRE, "exited with status 0", -1)])
            commands += made.handle(0.0, [ev.WorkerReady(PRE)])
        else:
            commands = [*lost, *written(made, holding)]
        answers |= {each.seq: each.result for each in of(Answer, commands)}

    assert deaths == 8
    assert answers == {
        1: Failure(
            1,
            "",
            "preprocess",
            "crash",
            "preprocess worker exited with status 0, 8 times while it held this item",
        )
    }
    assert sorted(made.backlog._items) == [0, 2]


WIDE, NARROW = ((3, 48, 128),), ((3, 48, 64),)


def test_rows_of_differing_shapes_never_share_a_batch():
    made = state(batch=4, depth=5, pre=4, queue=9)
    arrivals = [Arrived(seq, b"", shapes=NARROW if seq % 2 else WIDE) for seq in range(6)]

    writes = of(ev.Write, made.handle(0.0, arrivals))

    batches: dict[int, list[int]] = {}
    for write in writes:
        batches.setdefault(write.slot, []).extend(write.seqs)
        assert {seq % 2 for seq in write.seqs} == {write.shapes == NARROW}
    assert sorted(map(sorted, batches.values())) == [[0, 2, 4], [1, 3, 5]]


def test_a_batch_makes_way_where_nothing_that_waits_has_its_shape():
    made = state(batch=4, depth=5, pre=1)
    (write,) = of(ev.Write, made.handle(0.0, [Arrived(0, b"", shapes=WIDE)]))
    (run,) = of(ev.Run, written(made, write))
    assert run.shapes == WIDE

    made.handle(0.0, [Arrived(1, b"", shapes=WIDE)])
    commands = made.handle(0.0, [Arrived(2, b"", shapes=NARROW)])

    (other,) = of(ev.Write, commands)
    assert (other.seqs, other.shapes) == ([2], NARROW)


def test_a_batch_that_makes_way_leaves_at_once_for_a_device_that_stands_still():
    made = state(batch=4, depth=3, pre=1, max_wait_s=5.0)
    (write,) = of(ev.Write, made.handle(0.0, [Arrived(0, b"", shapes=WIDE)]))
    assert not of(ev.Run, written(made, write))  # it waits for more of its kind

    commands = made.handle(0.1, [Arrived(1, b"", shapes=NARROW)])

    (run,) = of(ev.Run, commands)
    assert (run.seq, run.last - run.first, run.shapes) == (0, 1, WIDE)
    assert of(ev.Write, commands)


def test_what_is_held_back_waits_and_is_refused_when_it_is_too_much():
    made = state(queue=2)
    made.handle(0.0, [Held(on=True)])

    commands = made.handle(0.0, [Arrived(seq, b"") for seq in range(3)])

    assert not of(ev.Write, commands)
    (answer,) = of(Answer, commands)
    assert (answer.seq, answer.result.kind) == (2, "overloaded")
    writes = of(ev.Write, made.handle(0.0, [Held(on=False)]))
    assert [write.seqs for write in writes] == [[0], [1]]


def test_what_was_begun_goes_on_while_the_rest_is_held_back():
    made = state(batch=4)
    (write,) = of(ev.Write, made.handle(0.0, [Arrived(0, b"")]))
    made.handle(0.0, [Held(on=True), Arrived(1, b"")])

    (run,) = of(ev.Run, written(made, write))

    assert (run.first, run.last) == (0, 1)


def test_without_a_model_what_pre_makes_is_the_record():
    made = ServingState(ServingShape(1, 4, {"pre": 1}, {"pre": "join"}))
    made.handle(0.0, [ev.WorkerReady(PRE)])
    answers = {}

    writes = of(ev.Write, made.handle(0.0, [Arrived(seq, b"") for seq in range(3)]))
    for write in writes:
        result = Fault("broken", "why") if write.seqs == [1] else b"{}"
        commands = made.handle(0.0, [ev.Replied(PRE, write.ticket, 10, [result])])
        writes += of(ev.Write, commands)
        answers |= {each.seq: each.result for each in of(Answer, commands)}

    assert answers == {0: b"{}", 1: Failure(1, "", "join", "broken", "why"), 2: b"{}"}
    assert made.slots_used() == (0, 0)
