"""Models on emulated NPUs through a whole pipeline, with real workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import yaml

import gepipe
from gepipe.emulator.om import Gears, OmTensor, write_om
from gepipe.errors import BackendError, ModelLoadError
from gepipe.ops.user import Python
from tests.support import doubling_model, workers_of


def first_of(outputs):
    return float(outputs["y"][0])


def rows(count: int) -> list[np.ndarray]:
    return [np.full(4, number, np.float32) for number in range(count)]


@pytest.fixture
def make(tmp_path, monkeypatch) -> Any:
    """Return a function that opens a pipeline over the doubling model on emulated cards."""
    opened: list[gepipe.Pipeline] = []
    monkeypatch.setenv("GEPIPE_ACL", "emulator")
    monkeypatch.setenv("GEPIPE_ACL_MODE", "strict")

    def make(
        profile: Mapping[str, Any] | None = None,
        *,
        graph: bool = True,
        infer: Mapping[str, Any] | None = None,
        **om: Any,
    ) -> gepipe.Pipeline:
        from gepipe.spec.model import PipelineSpec

        path = tmp_path / "profile.yaml"
        path.write_text(yaml.safe_dump({"name": tmp_path.name, **(profile or {})}))
        monkeypatch.setenv("GEPIPE_ACL_PROFILE", str(path))
        onnx = doubling_model(tmp_path / "m.onnx")
        tensors = [OmTensor(name, "float32", (-1, 4)) for name in "xy"]
        write_om(
            tmp_path / "m.om",
            onnx.read_bytes() if graph else None,
            inputs=tensors[:1],
            outputs=tensors[1:],
            gears=Gears("batch", ((1,), (4,))),
            **om,
        )
        spec = PipelineSpec(
            stages=[
                {"name": "preprocess", "threads": 2, "ops": []},
                {"name": "inference", "model": tmp_path / "m.om", **(infer or {})},
                {"name": "postprocess", "stream_count": 1, "ops": [Python(first_of)]},
            ],
        )
        opened.append(gepipe.Pipeline(spec))
        return opened[-1]

    yield make
    for pipeline in opened:
        pipeline.close()


def values(pipeline: gepipe.Pipeline, count: int) -> list[float]:
    return [result.value for result in pipeline.run(rows(count))]


WANTED: Callable[[int], list[float]] = lambda count: [2.0 * n + 1 for n in range(count)]  # noqa: E731


def test_om_model_gives_the_results_of_its_graph(make) -> None:
    pipeline = make()

    assert values(pipeline, 43) == WANTED(43)


def test_all_cards_are_used(make, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "busy"
    folder.mkdir()
    monkeypatch.setenv("GEPIPE_ACL_STATISTICS", str(folder))
    pipeline = make({"devices": 2, "latency_ms": {1: 5, 4: 10}, "pace_computing": True})

    total = 0

    def source():
        nonlocal total
        while len(workers_of(pipeline._supervisor, "infer", attached=True)) < 2:
            total += 1  # the second card may be there later than the first
            yield np.full(4, total - 1, np.float32)
        for _ in range(500 + 3 * total):
            total += 1
            yield np.full(4, total - 1, np.float32)

    assert [result.value for result in pipeline.run(source())] == WANTED(total)
    pipeline.close()

    cards = {}
    for path in folder.glob("*.json"):
        for device in json.loads(path.read_text())["devices"]:
            if device["busy_s"].get("compute"):
                cards[device["card"]] = device["busy_s"]["compute"]
    assert set(cards) == {0, 1}
    assert min(cards.values()) > 0.3 * max(cards.values())


def test_failed_execution_sets_its_batch_aside_or_is_tried_again(make) -> None:
    pipeline = make({"faults": [{"call": "mdl.execute_async", "at": 3, "code": 207003}]})

    assert values(pipeline, 40) == WANTED(40)


def test_hanging_card_is_left_behind(make) -> None:
    hang = {"call": "mdl.execute_async", "at": 3, "times": 99, "hang": True, "device": 1}
    pipeline = make({"devices": 2, "faults": [hang]}, infer={"timeout": "1s"})

    assert values(pipeline, 60) == WANTED(60)


def test_only_card_that_hangs_again_and_again_costs_no_item(make) -> None:
    """Each process of the card hangs in its third batch: what it was given then goes first."""
    hang = {"call": "mdl.execute_async", "at": 4, "times": 99, "hang": True}  # 1: the warm-up
    pipeline = make({"devices": 1, "faults": [hang]}, infer={"timeout": "1s"})

    assert values(pipeline, 32) == WANTED(32)
    assert not pipeline.failures


def test_lost_card_is_left_behind(make) -> None:
    lost = {"call": "mdl.execute_async", "at": 3, "times": 99, "lost": True, "device": 1}
    pipeline = make({"devices": 2, "faults": [lost]})

    assert values(pipeline, 60) == WANTED(60)


def test_model_that_does_not_fit_stops_the_run_with_the_sums(make) -> None:
    pipeline = make({"memory": "256MiB"}, graph=False, weight_bytes=1 << 30, work_bytes=1 << 20)

    with pytest.raises(
        (ModelLoadError, BackendError, gepipe.GepipeError), match=r"weights 1\.00 G"
    ):
        values(pipeline, 4)
