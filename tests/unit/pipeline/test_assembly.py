"""How the legs of a chain share the machine."""

from __future__ import annotations

import pytest

from gepipe import machine
from gepipe.errors import BackendError
from gepipe.ops.gather import Gather
from gepipe.ops.user import Python
from gepipe.pipeline.assembly import knows, plan, require_memory, stage_names
from gepipe.pipeline.chain import together
from tests.chains import chain


def open_machine(spec, cpus, monkeypatch):
    monkeypatch.setattr(machine, "cpu_count", lambda: cpus)
    auto = {"pre": {"threads": "auto"}, "infer": {"instances": "auto"},
            "mid": {"threads": "auto", "stream_count": "auto"},
            "post": {"stream_count": "auto"}}  # fmt: skip
    changed = [stage.model_copy(update=auto[stage.role]) for stage in spec.stages]
    return plan(spec.model_copy(update={"stages": tuple(changed)}))


@pytest.mark.parametrize(
    ("cpus", "wanted"),
    [(1, (1, 1, 1, 1)), (2, (1, 2, 1, 1)), (8, (4, 8, 1, 2)), (64, (32, 8, 4, 2))],
)
def test_models_on_the_cpu_compete_by_sessions_and_workers_are_divided(
    tmp_path, monkeypatch, cpus, wanted
) -> None:
    pre, sessions, threads, join = wanted
    planned = open_machine(chain(tmp_path), cpus, monkeypatch)

    for start in planned.starts:
        assert (start.pre_workers, len(start.engines)) == (pre, sessions)
        assert {options.threads for options in start.engines} == {threads}
        assert start.post_workers >= 1
    assert planned.join_workers == join


def test_what_the_stages_say_is_kept(tmp_path) -> None:
    planned = plan(chain(tmp_path))

    assert [start.pre_workers for start in planned.starts] == [1, 1]
    assert [len(start.engines) for start in planned.starts] == [1, 1]
    assert planned.join_workers == 1


class Counter(Python):
    ordered = True


def test_a_state_behind_gather_has_one_worker(tmp_path, monkeypatch) -> None:
    spec = chain(tmp_path, post=[Gather(), Counter("tests.chains:found")])

    assert open_machine(spec, 16, monkeypatch).join_workers == 1


def test_a_pipeline_of_one_model_is_planned_as_ever(tmp_path) -> None:
    (leg, _) = chain(tmp_path).legs
    planned = plan(leg)

    assert planned.legs == (planned.prepared,)
    assert (planned.join_workers, len(planned.starts)) == (0, 1)
    assert planned.notes == planned.starts[0].notes


def test_both_kinds_of_workers_of_a_stage_have_names(tmp_path) -> None:
    assert stage_names(chain(tmp_path)) == (
        ("cut (split)", "cut (parts)"),
        ("postprocess", "postprocess (gather)"),
    )


def test_whether_a_leg_knows_its_shapes(tmp_path) -> None:
    fixed, sized = (chain(tmp_path, widths=widths).legs[1] for widths in ((), (8, 16)))

    assert not knows(fixed)  # a function stands between
    assert knows(sized)


def test_the_slots_of_all_models_must_fit_into_memory(monkeypatch) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda: 10 << 30)
    require_memory([4 << 30, 3 << 30])
    with pytest.raises(BackendError, match=r"slots of 3 models need 9.00 GiB, but only 10.00 GiB"):
        require_memory([4 << 30, 3 << 30, 2 << 30])


def test_what_holds_for_all_models_is_told_once() -> None:
    told = together({"a": ("engine x", "needs 1 MiB"), "b": ("engine x", "needs 2 MiB")})

    assert told == ("engine x", "a: needs 1 MiB", "b: needs 2 MiB")
