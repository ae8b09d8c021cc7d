from gepipe.io.source import Entry
from gepipe.runtime.events import Admitted, Fault, Replied, Run, WorkerId, WorkerReady, Write
from gepipe.runtime.options import RunShape
from gepipe.runtime.state import RunState

PRE, INFER, POST = (WorkerId(role, 0) for role in ("pre", "infer", "post"))


def test_a_place_lost_in_the_run_before_is_not_waited_for():
    shape = RunShape(
        batch=1,
        depth=2,
        workers={"pre": 1, "infer": 2, "post": 1},
        names={"pre": "pre", "infer": "infer", "post": "post"},
        lost={WorkerId("infer", 1)},
    )
    state = RunState(shape)
    for worker in (PRE, INFER, POST):
        state.handle(WorkerReady(worker))
    (write,) = (c for c in state.handle(Admitted([Entry("a", b"a")], True)) if type(c) is Write)
    (run,) = (c for c in state.handle(Replied(PRE, write.ticket, 1, [b""])) if type(c) is Run)

    again = state.handle(Replied(INFER, run.ticket, 1, [Fault("device", "no answer")]))

    assert [type(c) for c in again] == [Run], "nobody else is left to try it on"
