"""Pipelines in Python with real workers: what users do in notebooks, scripts and tests."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

import gepipe
from gepipe.errors import ClosedError, ConfigError, StageError, WorkerStartError
from gepipe.ops.user import Python
from tests.support import (
    doubling_model,
    is_alive,
    jpeg,
    log_model,
    pause,
    python,
    script_environment,
    wait_until,
    workers_of,
)


def rows(*numbers: float) -> list[np.ndarray]:
    return [np.full(4, number, np.float32) for number in numbers]


def first_of(outputs):
    return float(outputs["y"][0])


@pytest.fixture
def make(tmp_path):
    """Return a function that opens a pipeline over the doubling model."""
    opened: list[gepipe.Pipeline] = []

    def make(*, pre=(), post=(first_of,), model=None, batch=4, infer=None, **keys):
        from gepipe.spec.model import PipelineSpec

        spec = PipelineSpec(
            stages=[
                {"name": "preprocess", "threads": 2, "batch_size": batch,
                 "ops": [each if not callable(each) or isinstance(each, gepipe.Op)
                         else Python(each) for each in pre]},
                {"name": "inference", "model": model or doubling_model(tmp_path / "m.onnx"),
                 **(infer or {})},
                {"name": "postprocess", "stream_count": 1, "ops": [Python(each) for each in post]},
            ],
            **keys,
        )  # fmt: skip
        pipeline = gepipe.Pipeline(spec)
        opened.append(pipeline)
        return pipeline

    yield make
    for pipeline in opened:
        pipeline.close()


def values(results) -> list:
    return [result.value for result in results]


def test_lambdas_and_nested_functions_are_stages(make) -> None:
    step = 3

    def add(row):
        return row + np.float32(step)

    pipeline = make(pre=[lambda row: row * 2, add], post=[lambda outputs: float(outputs["y"][1])])

    assert values(pipeline.run(rows(0, 1, 5))) == [7, 11, 27]


def test_two_runs_share_the_workers_and_each_has_its_failures(make) -> None:
    def picky(row):
        if row[0] == 2:
            raise ValueError("two")
        return row

    pipeline = make(pre=[picky])
    assert values(pipeline.run(rows(1, 2, 3))) == [3, 7]
    assert [(f.index, f.stage, f.kind) for f in pipeline.failures] == [
        (1, "preprocess", "ValueError")
    ]
    pids = workers_of(pipeline._supervisor)

    assert values(pipeline.run(iter(rows(5, 6)))) == [11, 13]
    assert pipeline.failures == []
    assert workers_of(pipeline._supervisor) == pids


def test_endless_generator_is_drawn_as_there_is_room(make) -> None:
    drawn: list[int] = []

    def endless():
        while True:
            drawn.append(len(drawn))
            yield rows(drawn[-1])[0]

    results = make().run(endless())
    seen = [next(results).value for _ in range(50)]
    pause(0.2)
    results.close()

    assert seen == [2 * n + 1 for n in range(50)]
    assert len(drawn) < 50 + 200


def test_giving_up_early_stops_the_workers(make) -> None:
    pipeline = make()
    results = pipeline.run(rows(*range(1000)))
    next(results)
    pids = workers_of(pipeline._supervisor)
    results.close()

    wait_until(lambda: not any(map(is_alive, pids)))
    assert values(pipeline.run(rows(4))) == [9], "a new run starts new workers"


def test_loop_that_was_left_early_is_in_nobodys_way(make) -> None:
    pipeline = make()
    for result in pipeline.run(rows(*range(1000))):
        if result.index == 3:
            break
    pipeline.run(rows(1))  # and one that is never looked at

    assert values(pipeline.run(rows(4))) == [9]


def test_closing_while_the_results_are_still_held_does_not_hang(make) -> None:
    pipeline = make(post=[slow])
    results = pipeline.run(rows(*range(500)))
    next(results)
    closer = threading.Thread(target=pipeline.close)
    closer.start()
    closer.join(60)

    assert not closer.is_alive(), "close() hangs"
    assert list(results) == []


def slow(outputs):
    pause(0.002)
    return float(outputs["y"][0])


def test_two_runs_at_once_are_refused(make) -> None:
    pipeline = make()
    one = pipeline.run(rows(1, 2))
    assert next(one).value == 3

    with pytest.raises(ClosedError, match="running"):
        next(pipeline.run(rows(3)))
    assert values(one) == [5]


def test_a_run_that_is_closed_before_it_began_is_over(make) -> None:
    pipeline = make()
    unused = pipeline.run(rows(1, 2))
    unused.close()

    assert values(pipeline.run(rows(3))) == [7]


def test_results_may_be_fed_back_as_inputs(make) -> None:
    queue = rows(1)
    arrived = threading.Condition()

    def source():
        for _ in range(6):
            with arrived:
                assert arrived.wait_for(lambda: queue, 10)
                item = queue.pop()
            yield item

    seen = []
    for result in make(max_wait=0.01).run(source()):
        seen.append(result.value)
        with arrived:
            queue.extend(rows(result.value))
            arrived.notify_all()

    assert seen == [3, 7, 15, 31, 63, 127]


def test_results_may_be_fed_back_without_any_setting(make) -> None:
    queue, arrived = rows(1), threading.Condition()

    def source():
        for _ in range(3):
            with arrived:
                assert arrived.wait_for(lambda: queue, 5), "no result came back: deadlock"
                item = queue.pop()
            yield item

    for result in make().run(source()):
        with arrived:
            queue.extend(rows(result.value))
            arrived.notify_all()


def test_error_in_the_users_generator_reaches_the_loop(make) -> None:
    def source():
        yield from rows(1, 2)
        raise LookupError("tape ended")

    with pytest.raises(LookupError, match="tape ended"):
        list(make().run(source()))


def test_stopping_on_the_first_failure_names_item_stage_and_cause(make) -> None:
    def picky(row):
        if row[0] == 6:
            raise ValueError("six")
        return row

    pipeline = make(pre=[picky], on_error="fail")
    seen = []
    with pytest.raises(StageError, match=r"input\[6\]: preprocess: .*six"):  # noqa: PT012
        for result in pipeline.run(rows(*range(40))):
            seen.append(result.index)  # noqa: PERF401

    assert seen == [0, 1, 2, 3, 4, 5]
    assert [f.index for f in pipeline.failures] == [6]


@pytest.mark.parametrize(("allowed", "ends"), [(1, True), (2, False), ("10%", False)])
def test_max_failures_counts_for_python_runs_too(make, allowed, ends) -> None:
    def picky(row):
        if row[0] in (3, 5):
            raise ValueError("bad")
        return row

    from gepipe.spec.load import loads

    limit = loads(
        "stages: [{name: preprocess}, {name: inference}, {name: postprocess}]\n"
        f"max_failures: {allowed}"
    ).max_failures
    pipeline = make(pre=[picky], max_failures=limit)

    if ends:
        with pytest.raises(StageError, match="max_failures"):
            list(pipeline.run(rows(*range(40))))
    else:
        assert len(values(pipeline.run(rows(*range(40))))) == 38


@pytest.mark.parametrize("policy", ["fail", "keep", "warn"])
def test_nan_of_one_item_is_that_items_matter(make, tmp_path, policy) -> None:
    inputs = rows(*range(1, 11))
    inputs[7][2] = -1
    pipeline = make(
        model=log_model(tmp_path / "log.onnx"),
        post=[lambda outputs: float(outputs["y"][2])],
        infer={"nan": policy},
    )

    results = {result.index: result.value for result in pipeline.run(inputs)}

    if policy == "fail":
        assert [(f.index, f.stage, f.kind) for f in pipeline.failures] == [(7, "inference", "nan")]
        assert sorted(results) == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    else:
        assert pipeline.failures == []
        assert np.isnan(results[7])
    assert all(abs(results[i] - np.log(i + 1)) < 1e-6 for i in results if i != 7)


def test_arrays_of_the_wrong_shape_or_type_are_explained(make) -> None:
    def odd(row):
        number = int(row[0])
        return [row, row[:3], row.astype(np.float64) + 0.5, None, {"z": row}, row[::-1]][number]

    pipeline = make(pre=[odd])
    results = {result.index: result.value for result in pipeline.run(rows(0, 1, 2, 3, 4, 5))}

    by_index = {failure.index: failure.error for failure in pipeline.failures}
    assert results[0] == 1
    assert results[5] == 11
    assert {1, 3, 4} <= set(by_index)
    assert "'x'" in by_index[1]
    assert "[4]" in by_index[1]


def test_fixed_batch_model_gives_ten_results_for_ten_items(make, tmp_path) -> None:
    pipeline = make(model=doubling_model(tmp_path / "four.onnx", 4), batch="auto")

    assert values(pipeline.run(rows(*range(10)))) == [2 * n + 1 for n in range(10)]


def test_set_up_of_user_code_that_raises_names_the_operator(make, tmp_path) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\ndef f(x): return x\n")
    pipeline = make(post=[f"{tmp_path}/broken.py:f"])

    with pytest.raises((ConfigError, WorkerStartError), match=r"no_such_module_at_all"):
        list(pipeline.run(rows(1)))


def test_a_single_path_is_refused_rather_than_taken_letter_by_letter(make) -> None:
    for single in ("photo.jpg", b"bytes", Path("photo.jpg")):
        with pytest.raises(ConfigError, match=r"list"):
            list(make().run(single))


def test_opencv_that_the_caller_used_before_does_no_harm(make) -> None:
    import cv2

    image = cv2.imdecode(np.frombuffer(jpeg(), np.uint8), cv2.IMREAD_COLOR)
    cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)

    def grey(row):
        import cv2

        return cv2.cvtColor(row.reshape(1, 4)[..., None].repeat(3, 2), cv2.COLOR_BGR2GRAY)[0]

    assert values(make(pre=[grey]).run(rows(1, 2))) == pytest.approx([3, 5])


SCRIPT = """
import sys
import numpy as np
import gepipe
{head}

class Scale:
    def __init__(self, by): self.by = by
    def __call__(self, row): return row * np.float32(self.by)

def first(outputs, meta):
    return float(outputs["y"][0])

from gepipe.ops.user import Python
from gepipe.spec.model import PipelineSpec
print("imported", flush=True)
spec = PipelineSpec(stages=[
    dict(name="preprocess", threads=4, ops=[Python(Scale(3)), Python({op})]),
    dict(name="inference", model="{model}"),
    dict(name="postprocess", ops=[Python(first)]),
])
with gepipe.Pipeline(spec) as pipeline:
    print([r.value for r in pipeline.run([np.full(4, n, np.float32) for n in range(9)])])
"""


@pytest.mark.parametrize(
    ("head", "op"),
    [
        ("", "lambda row: row"),
        ("", "Scale(1)"),
        (
            "import onnxruntime\nsession = onnxruntime.InferenceSession('{model}')\n"  # noqa: ISC004
            "session.run(None, dict(x=np.zeros((1, 4), np.float32)))",
            "lambda row: row",
        ),
        ("import cv2; cv2.GaussianBlur(np.zeros((99, 99), np.uint8), (5, 5), 0)", "Scale(1)"),
    ],
    ids=["lambda", "class of __main__", "session in the script", "cv2 used before"],
)
def test_script_without_a_main_guard_works(tmp_path, head, op) -> None:
    model = doubling_model(tmp_path / "m.onnx")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(head=head.format(model=model), op=op, model=model))

    done = subprocess.run(
        python(script), env=script_environment(), capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["imported", str([6.0 * n + 1 for n in range(9)])]
    assert done.stderr == ""


def test_session_in_the_module_of_a_stage_works_in_four_workers(tmp_path) -> None:
    model = doubling_model(tmp_path / "m.onnx")
    (tmp_path / "stage.py").write_text(
        "import onnxruntime, numpy as np\n"
        f"session = onnxruntime.InferenceSession({str(model)!r})\n"
        "def twice(row): return session.run(None, {'x': row[None]})[0][0]\n"
    )
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(head="import stage", op="stage.twice", model=model))

    done = subprocess.run(
        python(script), env=script_environment(), capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert str([2 * (6.0 * n + 1) + 1 for n in range(9)]) in done.stdout
