"""Chains of models with real workers."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from pathlib import Path

import cv2
import numpy as np
import pytest

import gepipe
from gepipe.errors import Interrupted, ModelLoadError, StageError
from gepipe.io.annotated import AnnotatedSink
from gepipe.ops.crop import Crop
from gepipe.ops.gather import Gather
from gepipe.ops.resize import Resize
from gepipe.ops.tensor import ToTensor
from gepipe.ops.user import Python
from gepipe.pipeline.job import Job
from tests.chains import (
    BROKEN,
    DEADLY,
    SIDE,
    SLOW,
    UNSPLIT,
    chain,
    expected,
    files,
    grey,
    mean_model,
    opened,
    picture,
)
from tests.support import is_alive, onnx_model, wait_until, workers_of

RANDOM = random.Random(5)
PICTURES = [[RANDOM.randrange(100, 250) for _ in range(n)] for n in (3, 0, 5, 1, 12, 0, 2, 4, 6)]


def results(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_part_is_read_and_put_back_in_its_place(tmp_path) -> None:
    with opened(tmp_path) as pipeline:
        made = list(pipeline.run(files(tmp_path / "in", PICTURES)))

        assert pipeline.failures == []
        assert [result.value for result in made] == [expected(values) for values in PICTURES]
        assert [result.index for result in made] == list(range(len(PICTURES)))


def test_inputs_in_memory_and_from_a_generator(tmp_path) -> None:
    with opened(tmp_path) as pipeline:
        for inputs in ([picture(each) for each in PICTURES], map(picture, PICTURES)):
            made = [result.value for result in pipeline.run(inputs)]
            assert made == [expected(values) for values in PICTURES]


def test_large_inputs_in_memory_travel_once(tmp_path) -> None:
    """Each lies where all its parts find it, and is let go of with its item."""
    noise = np.random.default_rng(1).integers(0, 256, (300, 400, 3), np.uint8)
    noise[:SIDE, :] = 9
    image = cv2.imencode(".png", noise)[1].tobytes()

    def descriptors() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    with opened(tmp_path) as pipeline:
        counts = []
        for result in pipeline.run(image for _ in range(60)):
            counts.append(descriptors())
            assert [part["grey"] for part in result.value["squares"]] == [9] * 50

        assert pipeline.failures == []
        assert len(counts) == 60
        assert descriptors() <= min(counts)


def test_arrays_are_pictures_without_decode_image(tmp_path) -> None:
    spec = chain(tmp_path)
    pre = spec.pre.model_copy(update={"ops": (Python(noted), *spec.pre.ops[1:])})
    spec = spec.model_copy(update={"stages": (pre, *spec.stages[1:])})
    arrays = [np.full((SIDE, SIDE * n, 3), 40 + n, np.uint8) for n in range(1, 5)]
    with gepipe.Pipeline(spec) as pipeline:
        made = [result.value["squares"] for result in pipeline.run(arrays)]

    assert [[part["grey"] for part in each] for each in made] == [
        [41], [42] * 2, [43] * 3, [44] * 4
    ]  # fmt: skip


def noted(array, meta):
    meta["height"], meta["width"] = array.shape[:2]
    return array


def test_a_part_that_fails_marks_itself_and_an_item_that_fails_is_a_failure(tmp_path) -> None:
    pictures = [[1, BROKEN, 2], [DEADLY, 3], list(range(UNSPLIT)), [9], [BROKEN]]
    inputs = files(tmp_path / "in", pictures)
    Path(inputs[3]).write_bytes(b"no picture")

    with opened(tmp_path) as pipeline:
        made = {result.index: result.value for result in pipeline.run(inputs)}
        numbers = pipeline.statistics()

        assert made == {i: expected(pictures[i]) for i in (0, 1, 4)}
        assert [(f.index, f.stage, f.kind) for f in pipeline.failures] == [
            (2, "cut", "unsplit"),
            (3, "preprocess", "not_an_image"),
        ]
        assert (numbers.done, numbers.failed) == (3, 2)


def test_parts_of_several_widths_go_through_in_batches_of_one(tmp_path) -> None:
    def wider(_, meta):
        places = [{"box": [0, 0, SIDE * n, SIDE]} for n in range(1, 1 + meta["width"] // SIDE)]
        return {"squares": places}

    def total(outputs, meta):
        """The fill is 0, so the mean times the width is the sum of the squares."""
        return {"sum": round(float(outputs["y"]) * meta["width"] / SIDE, 2)}

    spec = chain(tmp_path, widths=(16, 32, 48), post=[Python(total)])
    mid = spec.stages[2].model_copy(update={"ops": (Python(wider), *spec.stages[2].ops[1:])})
    spec = spec.model_copy(update={"stages": (*spec.stages[:2], mid, *spec.stages[3:])})
    pictures = [each[:6] for each in PICTURES]
    with gepipe.Pipeline(spec) as pipeline:
        made = [result.value for result in pipeline.run(files(tmp_path / "in", pictures))]

    for values, record in zip(pictures, made, strict=True):
        sums = [part["sum"] for part in record["squares"]]
        assert sums == pytest.approx([sum(values[:n]) for n in range(1, 1 + len(values))], abs=1.5)
    assert pipeline.failures == []


def test_the_whole_picture_as_the_only_part_adds_to_the_record(tmp_path) -> None:
    pictures = [[40] * 3, [BROKEN] * 3, [50] * 2]
    with opened(tmp_path, whole=True) as pipeline:
        made = list(pipeline.run(files(tmp_path / "in", pictures)))

        assert [(result.index, result.value["grey"]) for result in made] == [(0, 40), (2, 50)]
        assert "parts" not in made[0].value
        assert [(f.index, f.stage, f.kind) for f in pipeline.failures] == [
            (1, "postprocess", "broken")
        ]


def test_parts_of_parts(tmp_path) -> None:
    def halves(outputs):
        value = round(float(outputs["y"]))
        if value == BROKEN:
            raise ValueError
        return {"grey": value, "halves": [{"box": [0, 0, 4, 8]}, {"box": [4, 0, 8, 8]}]}

    def half(outputs):
        return {"half": round(float(outputs["y"]))}

    more = [
        {"name": "again", "role": "mid", "batch_size": 3,
         "ops": [Python(halves), Crop(), Resize((4, 4)), ToTensor()]},
        {"name": "third", "role": "infer", "model": mean_model(tmp_path / "third.onnx")},
    ]  # fmt: skip
    pictures = [*PICTURES, [5, BROKEN, 7]]
    with opened(tmp_path, more=more, post=[Python(half)]) as pipeline:
        made = [result.value for result in pipeline.run(files(tmp_path / "in", pictures))]
        stages = [stage.name for stage in pipeline.statistics().stages.values()]

    for values, record in zip(pictures, made, strict=True):
        for value, square in zip(values, record["squares"], strict=True):
            if value == BROKEN:
                assert square["failure"]["stage"] == "again"
                continue
            assert square["grey"] == value
            assert [each["half"] for each in square["halves"]] == [value, value]
    assert stages[2:4] == ["cut (split)", "cut (parts)"]
    assert stages[-1] == "postprocess (gather)"


def test_what_stands_behind_gather_sees_the_item(tmp_path) -> None:
    def summed(record):
        return {"sum": sum(part["grey"] for part in record["found"])}

    post = [Python(grey), Gather(into="found"), Python(summed)]
    with opened(tmp_path, post=post) as pipeline:
        made = [result.value for result in pipeline.run(files(tmp_path / "in", PICTURES))]

    assert made == [{"sum": sum(values)} for values in PICTURES]


def test_equal_runs_give_equal_bytes_also_when_resumed(tmp_path) -> None:
    pictures = [
        [RANDOM.randrange(1, 12) or 1 for _ in range(RANDOM.randrange(8))] for _ in range(70)
    ]
    pictures = [[BROKEN if v == 5 else v for v in each] for each in pictures]
    inputs = files(tmp_path / "in", pictures)
    spec = chain(tmp_path, widths=(8, 16))
    whole = tmp_path / "whole.jsonl"
    Job(spec, inputs=inputs, output=whole).run()
    lines, failures = whole.read_bytes().splitlines(), whole.with_suffix(".failures.jsonl")

    for done in (1, 17, 40):
        again = tmp_path / f"again{done}.jsonl"
        job = Job(spec, inputs=inputs, output=again)
        report = job.run()
        assert report.total == 70
        assert again.read_bytes() == whole.read_bytes()
        again.write_bytes(b"\n".join([*lines[:done], lines[done][:9]]))
        cut_failures(again, done, lines)
        Job(spec, inputs=inputs, output=again, resume=True).run()
        assert again.read_bytes() == whole.read_bytes()
        assert again.with_suffix(".failures.jsonl").read_bytes() == failures.read_bytes()


def cut_failures(output: Path, done: int, lines: list[bytes]) -> None:
    """Drop the failures behind the last result, as a run that was killed had not written them."""
    last = json.loads(lines[done - 1])["index"]
    path = output.with_suffix(".failures.jsonl")
    kept = [line for line in path.read_bytes().splitlines(keepends=True)
            if json.loads(line)["index"] <= last]  # fmt: skip
    path.write_bytes(b"".join(kept))


def test_failures_of_items_are_counted_and_those_of_parts_are_not(tmp_path) -> None:
    pictures = [[BROKEN] * 4] * 5 + [list(range(UNSPLIT))] * 3 + [[9]] * 40
    inputs = files(tmp_path / "in", pictures)
    output = tmp_path / "out.jsonl"
    job = Job(chain(tmp_path, max_failures=2), inputs=inputs, output=output)

    with pytest.raises(StageError, match=r"00007.png: cut: on purpose; stopped, since no"):
        job.run()

    assert [record["index"] for record in results(output)] == [0, 1, 2, 3, 4]
    assert (job.parts.failed, job.parts.marred) == (20, 5)
    assert (job.done, job.failed) == (8, 3)
    with pytest.raises(StageError, match=r"no failure is allowed"):
        Job(chain(tmp_path, on_error="fail"), inputs=inputs, output=output).run()


@pytest.mark.parametrize("number", [0, 1])
def test_a_model_that_does_not_open_ends_the_run_under_its_name(tmp_path, number) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    spec = chain(tmp_path)
    stages = list(spec.stages)
    stages[2 * number + 1] = stages[2 * number + 1].model_copy(update={"model": broken})
    spec = spec.model_copy(update={"stages": tuple(stages)})
    with gepipe.Pipeline(spec) as pipeline, pytest.raises(ModelLoadError, match=r"broken.onnx"):
        list(pipeline.run(files(tmp_path / "in", PICTURES)))


def test_a_run_that_is_stopped_leaves_an_exact_prefix_and_goes_on(tmp_path) -> None:
    pictures = [[SLOW, 1, 2]] * 150
    inputs = files(tmp_path / "in", pictures)
    output = tmp_path / "out.jsonl"
    job = Job(chain(tmp_path), inputs=inputs, output=output)
    stopper = threading.Thread(
        target=lambda: (wait_until(lambda: job.done > 3), job.request_stop())
    )
    stopper.start()
    with pytest.raises(Interrupted):
        job.run()
    stopper.join()

    assert 3 < job.done < 150
    assert [record["index"] for record in results(output)] == list(range(job.done))
    Job(chain(tmp_path), inputs=inputs, output=output, resume=True).run()
    assert [record["result"] for record in results(output)] == [expected(p) for p in pictures]


def test_a_worker_of_each_stage_that_is_killed_costs_nothing(tmp_path) -> None:
    pictures = [[SLOW, 1, 2]] * 150
    inputs = files(tmp_path / "in", pictures)
    with opened(tmp_path) as pipeline:
        assert len(list(pipeline.run(inputs[:4]))) == 4
        victims = chain_workers(pipeline)
        assert len(victims) == 7
        run = pipeline.run(inputs)
        made = []
        for victim in victims:
            made += [next(run)]
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda victim=victim: not is_alive(victim))
        made += list(run)
        restarts = {s.name: s.restarts for s in pipeline.statistics().stages.values()}

        assert [result.value for result in made] == [expected(values) for values in pictures]
        assert pipeline.failures == []
        assert sum(restarts.values()) == len(victims)


def chain_workers(pipeline) -> list[int]:
    chain = pipeline._supervisor
    return [pid for each in (*chain._legs, chain._join) for pid in workers_of(each)]


def test_an_item_of_thousands_of_parts_goes_through_in_portions(tmp_path) -> None:
    def thousands(_):
        return {"squares": [{"box": [0, 0, SIDE, SIDE], "n": n} for n in range(5000)]}

    spec = chain(tmp_path, parts=64)
    mid = spec.stages[2].model_copy(update={"ops": (Python(thousands), *spec.stages[2].ops[1:])})
    spec = spec.model_copy(update={"stages": (*spec.stages[:2], mid, *spec.stages[3:])})
    with gepipe.Pipeline(spec) as pipeline:
        made = [result.value for result in pipeline.run(files(tmp_path / "in", [[9, 8]] * 4))]
        numbers = pipeline.statistics()

    assert len(made) == 4  # of one batch: each waits for the one before
    for record in made:
        assert [part["n"] for part in record["squares"]] == list(range(5000))
        assert {part["grey"] for part in record["squares"]} == {9}
    assert numbers.slots == (2, 2), "of each model"
    assert numbers.slot_nbytes < 4 << 20


def test_memory_does_not_grow_with_the_number_of_items_and_parts(tmp_path) -> None:
    """2,000 items of 20 parts: what is between the models is bounded, and so is this process."""
    (path,) = files(tmp_path / "in", [[50] * 20])
    with opened(tmp_path, parts=32, batch=8) as pipeline:
        list(pipeline.run([path] * 200))
        before, most = resident(), [0, 0]
        count = 0
        for result in pipeline.run([path] * 2000):
            count += len(result.value["squares"])
            (fan,) = pipeline._supervisor._run.fans
            most = [max(most[0], fan.items), max(most[1], fan.parts)]

        assert count == 40_000
        assert most[0] <= 48
        assert most[1] <= 48 * 20
        assert resident() - before < 16 << 20


def test_memory_does_not_grow_with_the_size_of_facts(tmp_path, monkeypatch) -> None:
    """40 items of 7 MiB of facts, and a quarter of the usual room: there is never any for all."""
    monkeypatch.setattr("gepipe.pipeline.chainrun._NBYTES", 16 << 20)
    monkeypatch.setattr("gepipe.pipeline.passages._JOIN_NBYTES", 8 << 20)
    monkeypatch.setattr("gepipe.pipeline.fan._CLOSED_AFTER_NBYTES", 4 << 20)
    (path,) = files(tmp_path / "in", [[50] * 500])
    post = [Python("tests.chains:grey"), Gather(), Python("tests.chains:light")]
    spec = chain(tmp_path, batch=1, parts=8, find="tests.chains:heavy_squares", post=post)
    before, most = resident(), 0
    with gepipe.Pipeline(spec) as pipeline:
        results = pipeline.run([path] * 40)
        done = threading.Event()

        def look() -> None:
            nonlocal most
            while not done.wait(0.02):
                most = max(most, resident())

        looking = threading.Thread(target=look)
        looking.start()
        try:
            made = [result.value["squares"] for result in results]
        finally:
            done.set()
            looking.join()

    assert [[part["grey"] for part in each] for each in made] == [[50] * 500] * 40
    assert most - before < 192 << 20  # 130 MiB; without any limit, 250


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_source_that_breaks_is_told_behind_the_results(tmp_path) -> None:
    def breaking():
        yield from map(picture, PICTURES[:5])
        raise RuntimeError("the source broke")

    made = []
    with opened(tmp_path) as pipeline:
        with pytest.raises(RuntimeError, match="the source broke"):
            made.extend(result.value for result in pipeline.run(breaking()))

        assert made == [expected(values) for values in PICTURES[:5]]
        assert len(list(pipeline.run([picture([9])]))) == 1


def test_nan_of_the_second_model_marks_the_part_under_its_name(tmp_path) -> None:
    second = onnx_model(
        tmp_path / "log.onnx",
        [
            ("ReduceMean", ["x"], ["m"], {"axes": [1, 2, 3], "keepdims": 0}),
            ("Sub", ["m", "fifty"], ["d"], {}),
            ("Log", ["d"], ["y"], {}),
        ],
        {"x": ("float32", ["n", 3, 4, 4])},
        {"y": ("float32", ["n"])},
        {"fifty": np.array(50, np.float32)},
    )
    with opened(tmp_path, second=second) as pipeline:
        (result,) = pipeline.run([picture([60, 40, 60])])

    good, bad, other = result.value["squares"]
    assert good["grey"] == other["grey"] == 2
    assert (bad["failure"]["stage"], bad["failure"]["kind"]) == ("read", "nan")


def test_a_sink_that_draws_gets_the_picture_of_the_item(tmp_path) -> None:
    inputs = files(tmp_path / "in", [[100, 200], [50]])
    post = [Python("tests.chains:grey"), Gather(), Python("tests.chains:found")]
    spec = chain(tmp_path, post=post)
    sink = AnnotatedSink(str(tmp_path / "out.jsonl"))
    Job(spec.model_copy(update={"sink": sink}), inputs=inputs).run()

    drawn = sorted((tmp_path / "out").iterdir())
    assert len(drawn) == 2
    assert [cv2.imread(str(each)).shape for each in drawn] == [(SIDE, 2 * SIDE, 3), (SIDE, SIDE, 3)]


def test_a_part_that_hangs_is_set_aside_alone(tmp_path) -> None:
    spec = chain(tmp_path)
    mid = spec.stages[2]
    ops = (*mid.ops[:2], Python("tests.chains:hang"), *mid.ops[3:])
    mid = mid.model_copy(update={"timeout": 1.5, "ops": ops})
    spec = spec.model_copy(update={"stages": (*spec.stages[:2], mid, *spec.stages[3:])})
    with gepipe.Pipeline(spec) as pipeline:
        made = [result.value["squares"] for result in pipeline.run([picture([1, SLOW, 2])])]

    ((good, bad, other),) = made
    assert (good["grey"], other["grey"]) == (1, 2)
    assert (bad["failure"]["stage"], bad["failure"]["kind"]) == ("cut", "timeout")
