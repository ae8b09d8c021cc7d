"""A service of several models with real workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import gepipe
from gepipe.errors import BackendError, WorkerStartError
from gepipe.io.failures import Failure
from gepipe.ops.crop import Crop
from gepipe.ops.resize import Resize
from gepipe.ops.tensor import ToTensor
from gepipe.ops.user import Python
from gepipe.serving import chainstate
from gepipe.serving.bundle import load_bundle
from gepipe.serving.events import Refusal
from gepipe.serving.export import export
from gepipe.serving.service import Service
from gepipe.spec.load import load
from gepipe.spec.model import PipelineSpec
from tests.answers import Answers
from tests.chains import (
    BROKEN,
    DEADLY,
    SIDE,
    SLOW,
    UNSPLIT,
    chain,
    expected,
    mean_model,
    picture,
)
from tests.support import ROOT, children_of, is_alive, onnx_model, pause, wait_until

#: The stages of the ready pipeline `detect-classify` that have a model.
MODELS = ("detect", "classify")
PICTURES = [[n, (7 * n) % 60, *range(n % 5)] for n in range(40)]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Answers]]:
    """Return a function that starts a service of a chain."""
    started: list[Service] = []

    def serve(spec: PipelineSpec | None = None, **keys: Any) -> Answers:
        profile = {"queue": keys.pop("queue", 1000)}
        service = Service(spec or chain(tmp_path, profile=profile, **keys))
        started.append(service)
        service.start()
        return Answers(service)

    yield serve
    for service in started:
        service.close()


def looking(spec: PipelineSpec, look: Callable[..., Any], **more: Any) -> PipelineSpec:
    """Return a chain whose parts are looked at by a function as they are cut out."""
    mid = spec.stages[2]
    mid = mid.model_copy(update={"ops": (*mid.ops[:2], Python(look), *mid.ops[3:]), **more})
    return spec.model_copy(update={"stages": (*spec.stages[:2], mid, *spec.stages[3:])})


def slowly(image: Any) -> Any:
    """Wait over some squares."""
    if int(image[0, 0, 0]) == SLOW:
        pause(0.3)
    return image


def workers_of(answers: Answers, leg: int) -> dict[tuple[str, int], int]:
    """Return the processes of a leg by their places."""
    found = answers.service._route._legs[leg]._workforce._processes
    return {(worker.role, worker.index): each.process.pid for worker, each in found.items()}


def state_of(answers: Answers) -> Any:
    return answers.service._route._state


def test_items_with_parts_of_all_numbers_are_never_mixed_up(serve) -> None:
    answers = serve()

    tokens = [answers.ask(picture(each), realtime=n % 3 == 0) for n, each in enumerate(PICTURES)]

    assert answers.wait(*tokens) == [expected(each) for each in PICTURES]
    assert answers.service.statistics().done == len(PICTURES)
    parts = sum(map(len, PICTURES))
    executed = answers.service.executed()
    assert sum(each.items for each in executed if not each.place) == len(PICTURES)
    assert sum(each.items for each in executed if each.place) == parts
    assert len(answers.service.devices) == 2


def test_parts_of_several_shapes_are_what_a_run_makes_of_them(serve, tmp_path) -> None:
    def wider(_, meta):
        places = [{"box": [0, 0, SIDE * n, SIDE]} for n in range(1, 1 + meta["width"] // SIDE)]
        return {"squares": places}

    def mean(outputs):
        return {"mean": float(outputs["y"])}

    spec = chain(tmp_path, widths=(16, 32, 48), post=[Python(mean)], profile={"queue": 1000})
    mid = spec.stages[2].model_copy(update={"ops": (Python(wider), *spec.stages[2].ops[1:])})
    spec = spec.model_copy(update={"stages": (*spec.stages[:2], mid, *spec.stages[3:])})
    pictures = [picture(each) for each in PICTURES]
    with gepipe.Pipeline(spec) as pipeline:
        wanted = [result.value for result in pipeline.run(pictures)]
    answers = serve(spec)

    made = answers.wait(*map(answers.ask, pictures))

    assert made == wanted
    executed = [each.items for each in answers.service.executed() if each.place]
    assert max(executed) > 1  # those of one shape share batches


def test_what_fails_is_marked_or_fails_alone(serve) -> None:
    answers = serve()
    several = [[1, BROKEN, 2], [DEADLY, 3], list(range(UNSPLIT)), [9], [BROKEN]]
    tokens = [answers.ask(picture(each)) for each in several]
    tokens += [answers.ask(b"no picture"), answers.ask(b"")]

    made = answers.wait(*tokens)

    assert [made[i] for i in (0, 1, 3, 4)] == [expected(several[i]) for i in (0, 1, 3, 4)]
    failures = [(made[i].index, made[i].stage, made[i].kind) for i in (2, 5, 6)]
    assert failures == [
        (tokens[2], "cut", "unsplit"),
        (tokens[5], "preprocess", "not_an_image"),
        (tokens[6], "preprocess", "empty"),
    ]
    assert answers.service.statistics().restarts["pre"] == 2


def test_the_only_part_fails_with_its_item(serve) -> None:
    answers = serve(whole=True)

    good, bad = answers.wait(answers.ask(picture([40, 40])), answers.ask(picture([BROKEN] * 2)))

    assert good["grey"] == 40
    assert (bad.stage, bad.kind) == ("postprocess", "broken")


def test_parts_of_parts(serve, tmp_path) -> None:
    def halves(outputs):
        value = round(float(outputs["y"]))
        if value == BROKEN:
            raise ValueError
        return {"grey": value, "halves": [{"box": [0, 0, 4, 8]}, {"box": [4, 0, 8, 8]}]}

    def half(outputs):
        return {"half": round(float(outputs["y"]))}

    more = [
        {"name": "again", "role": "mid", "batch_size": 3, "threads": 1, "stream_count": 1,
         "ops": [Python(halves), Crop(), Resize((4, 4)), ToTensor()]},
        {"name": "third", "role": "infer", "model": mean_model(tmp_path / "third.onnx"),
         "instances": 1},
    ]  # fmt: skip
    answers = serve(more=more, post=[Python(half)])
    pictures = [*PICTURES, [5, BROKEN, 7]]

    made = answers.wait(*[answers.ask(picture(each)) for each in pictures])

    for values, record in zip(pictures, made, strict=True):
        for value, square in zip(values, record["squares"], strict=True):
            if value == BROKEN:
                assert square["failure"]["stage"] == "again"
            else:
                assert square["grey"] == value
                assert [each["half"] for each in square["halves"]] == [value, value]


def test_arrays_are_pictures_too_and_travel_once(serve, tmp_path) -> None:
    """Neither the parts of an item take its input along, nor does anything stay of it."""
    model = onnx_model(
        tmp_path / "bytes.onnx",
        [
            ("Cast", ["x"], ["f"], {"to": 1}),
            ("ReduceMean", ["f"], ["y"], {"axes": [1, 2, 3], "keepdims": 0}),
        ],
        {"x": ("uint8", ["n", 100, 400, 3])},
        {"y": ("float32", ["n"])},
    )
    spec = chain(tmp_path, first=model, find="tests.runtime.test_chain_service:quarters")
    pre = spec.pre.model_copy(update={"ops": ()})
    answers = serve(spec.model_copy(update={"stages": (pre, *spec.stages[1:])}))
    arrays = [np.full((100, 400, 3), 100 + n, np.uint8) for n in range(40)]
    store = answers.service._route._store

    made = answers.wait(*map(answers.ask, arrays))

    wanted = [[{"grey": 100 + n}] * 4 for n in range(40)]
    assert [[{"grey": part["grey"]} for part in each["squares"]] for each in made] == wanted
    wait_until(lambda: not store._places)
    assert not store._held


def quarters(_: Any) -> Any:
    """Say where four parts are."""
    return {"squares": [{"box": [100 * i, 0, 100 * i + 100, 100]} for i in range(4)]}


def test_a_large_input_that_is_a_file_lies_where_its_parts_find_it(serve) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (300, 400, 3), np.uint8)
    noise[:SIDE] = 9
    image = cv2.imencode(".png", noise)[1].tobytes()
    answers = serve()

    made = answers.wait(*[answers.ask(image) for _ in range(30)])

    assert [[part["grey"] for part in each["squares"]] for each in made] == [[9] * 50] * 30
    wait_until(lambda: not answers.service._route._store._held)


def test_a_worker_of_any_place_that_is_killed_costs_nothing(serve) -> None:
    answers = serve()
    answers.wait(answers.ask(picture([1])))
    places = [(leg, place) for leg in range(3) for place in workers_of(answers, leg)]

    for leg, place in places:
        tokens = [answers.ask(picture([n, n + 1])) for n in range(12)]
        os.kill(workers_of(answers, leg)[place], signal.SIGKILL)
        assert answers.wait(*tokens) == [expected([n, n + 1]) for n in range(12)], (leg, place)

    assert len(places) == 7
    wait_until(lambda: sum(answers.service.statistics().restarts.values()) >= len(places))


def test_more_than_the_queue_takes_is_refused_at_the_front_and_nowhere_else(
    serve, monkeypatch
) -> None:
    monkeypatch.setattr(chainstate, "PARTS", 20)
    answers = serve(queue=10)
    most = 0

    tokens = []
    for n in range(200):
        tokens.append(answers.ask(picture([n % 60] * 6)))
        most = max(most, state_of(answers)._fans[0].parts)
    made = answers.wait(*tokens)

    refused = [each for each in made if isinstance(each, Failure)]
    assert {(each.stage, each.kind) for each in refused} == {("preprocess", "overloaded")}
    good = [(n, each) for n, each in enumerate(made) if not isinstance(each, Failure)]
    assert all(each == expected([n % 60] * 6) for n, each in good)
    assert len(good) >= 10
    # What the first leg holds may still come: its slots, and the rows its workers are at.
    assert most <= 20 + 6 * 4 * 8


def test_a_cancelled_item_is_answered_at_once_and_its_parts_are_not_done(serve, tmp_path) -> None:
    answers = serve(looking(chain(tmp_path, profile={"queue": 10}), slowly))
    token = answers.ask(picture([SLOW] * 20))
    wait_until(lambda: state_of(answers)._fans[0].parts == 20)

    answers.service.cancel(token)
    (cancelled,) = answers.wait(token)
    (other,) = answers.wait(answers.ask(picture([5])))

    assert cancelled == Refusal(token, "", "preprocess", "cancelled", "the request was cancelled")
    assert other == expected([5])
    wait_until(lambda: not state_of(answers)._ways)
    assert sum(each.items for each in answers.service.executed() if each.place) < 10


def test_an_item_whose_time_is_over_is_answered_wherever_it_is(serve, tmp_path) -> None:
    answers = serve(looking(chain(tmp_path, profile={"queue": 10}), slowly))

    tokens = [answers.ask(picture([SLOW] * 8), deadline_s=0.5) for _ in range(3)]
    tokens.append(answers.ask(picture([1, 2])))
    *expired, good = answers.wait(*tokens)

    assert {each.kind for each in expired} == {"expired"}
    assert [each.index for each in expired] == tokens[:3]
    assert good == expected([1, 2])


def test_a_part_that_hangs_is_set_aside_alone(serve, tmp_path) -> None:
    spec = chain(tmp_path)
    answers = serve(looking(spec, "tests.chains:hang", timeout=1.5))  # type: ignore[arg-type]

    (made,) = answers.wait(answers.ask(picture([1, SLOW, 2])))

    good, bad, other = made["squares"]
    assert (good["grey"], other["grey"]) == (1, 2)
    assert (bad["failure"]["stage"], bad["failure"]["kind"]) == ("cut", "timeout")


def test_closing_finishes_what_is_there(serve, tmp_path) -> None:
    answers = serve(looking(chain(tmp_path, profile={"queue": 10}), slowly))
    tokens = [answers.ask(picture([SLOW, n])) for n in range(4)]

    answers.service.close(60.0)

    assert answers.wait(*tokens) == [expected([SLOW, n]) for n in range(4)]
    (late,) = answers.wait(answers.ask(picture([1])))
    assert late.kind == "unavailable"
    assert not answers.service.is_open


def test_closing_under_load_answers_everything_once_and_leaves_no_process(serve, tmp_path) -> None:
    answers = serve(looking(chain(tmp_path, profile={"queue": 1000}), slowly))
    tokens = [answers.ask(picture([n, SLOW, n])) for n in range(30)]
    pids = [pid for leg in range(3) for pid in workers_of(answers, leg).values()]
    wait_until(lambda: state_of(answers)._fans[0].parts > 3)

    answers.service.close(0.0)

    made = answers.wait(*tokens)
    kinds = {each.kind for each in made if isinstance(each, Failure)}
    assert kinds == {"unavailable"}
    wait_until(lambda: not any(map(is_alive, pids)))
    assert not answers.service._route._store._held


@pytest.mark.parametrize("leg", [0, 1])
def test_a_model_that_does_not_open_ends_the_start_and_leaves_nothing(tmp_path, leg) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"no model")
    service = Service(chain(tmp_path, **{("first", "second")[leg]: bad}))
    before = {child for each in children_of(os.getpid()) for child in children_of(each)}

    with pytest.raises(BackendError, match=r"bad\.onnx"):
        service.start()

    def left() -> set[int]:
        now = {child for each in children_of(os.getpid()) for child in children_of(each)}
        return now - before

    wait_until(lambda: not left())
    told: list[bytes | Failure] = []
    service.submit(picture([1]), answer=told.append)
    assert [each.kind for each in told if isinstance(each, Failure)] == ["unavailable"]
    service.close()


def test_an_operator_behind_gather_that_does_not_set_up_ends_the_start(tmp_path) -> None:
    from gepipe.ops.gather import Gather

    spec = chain(tmp_path, post=[Python("tests.chains:grey"), Gather(), Python("absent:f")])

    with pytest.raises((WorkerStartError, gepipe.errors.ConfigError), match="absent"):
        Service(spec).start()


def test_the_loss_of_the_second_model_ends_the_service_and_answers_everything(
    serve, tmp_path
) -> None:
    second = mean_model(tmp_path / "second.onnx")
    spec = chain(tmp_path, second=second, profile={"queue": 100})
    answers = serve(looking(spec, slowly))
    answers.wait(answers.ask(picture([1])))
    tokens = [answers.ask(picture([SLOW, n])) for n in range(8)]
    second.unlink()  # what takes the place of its worker cannot open it

    os.kill(workers_of(answers, 1)["infer", 0], signal.SIGKILL)
    made = answers.wait(*tokens)
    wait_until(lambda: not answers.service.is_open)
    (late,) = answers.wait(answers.ask(picture([1])))

    assert all(
        each == expected([SLOW, n]) or each.kind == "unavailable" for n, each in enumerate(made)
    )
    assert isinstance(made[-1], Failure)
    assert (late.kind, late.error[:22]) == ("unavailable", "the service has ended:")


@pytest.mark.skipif(
    not (ROOT / "samples/models/nanodet_g.onnx").exists(),
    reason="the models are not fetched: gepipe samples fetch detect-classify",
)
def test_converted_models_are_exported_with_the_operators_that_became_a_part_of_them(
    serve, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("GEPIPE_CACHE", str(tmp_path / "cache"))
    backend = "backend={ge: {device: emulator, aipp: true}}"
    spec = load(ROOT / "pipelines/detect-classify.yaml", [f"{s}.{backend}" for s in MODELS])
    photos = [path.read_bytes() for path in sorted((ROOT / "samples/media/photos").iterdir())[:4]]
    with gepipe.Pipeline(spec) as pipeline:
        wanted = [result.value for result in pipeline.run(photos)]

    export(spec, tmp_path / "models")
    served = load_bundle(tmp_path / "models/detect-classify/1")
    monkeypatch.setenv("GEPIPE_CACHE", str(tmp_path / "empty"))
    answers = serve(served)
    made = answers.wait(*map(answers.ask, photos))

    assert [leg.infer.model.suffix for leg in served.legs] == [".om", ".om"]
    titles = [op.title.split()[0] for stage in served.stages[::2] for op in stage.ops]
    assert "normalize" not in titles
    assert made == wanted
    assert any(record["detections"] for record in made)
