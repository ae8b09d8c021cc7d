"""What is planned for a model of open sizes, from what the operators of pre make at most."""

from __future__ import annotations

from typing import Any

import pytest

from gepipe.engines.engine import EngineOptions
from gepipe.errors import BackendError, ConfigError, TensorMismatchError
from gepipe.pipeline.plan import plan_slots
from gepipe.pipeline.startplan import StartPlan
from gepipe.runtime.body import ModelInfo
from gepipe.spec import loads
from gepipe.tensors import TensorSpec

PIXELS = TensorSpec("x", "float32", (3, -1, -1))
INFO = ModelInfo((PIXELS,), (TensorSpec("y", "float32", (1, -1, -1)),), largest=(64 * 96 * 4,))


def pipeline(resize: str, **keys: Any):
    more = "".join(f", {key}: {value}" for key, value in keys.items())
    return loads(
        f"""
stages:
  - {{name: preprocess, ops: [decode_image, {resize} {{normalize: {{mean: 0}}}}, to_tensor]{more}}}
  - {{name: inference, model: m.onnx}}
  - {{name: postprocess}}
"""
    )


def started(pre: int = 3, engines: int = 1) -> StartPlan:
    options = tuple(EngineOptions() for _ in range(engines))
    return StartPlan("onnxruntime", None, options, True, pre, 1, 4, None, ())


LIMITED = "{resize: {max_side: 100, multiple_of: 32}},"


def test_memory_is_that_of_the_largest_and_a_batch_is_one_item() -> None:
    slots = plan_slots(pipeline(LIMITED), started(), INFO)

    assert slots.inputs.batch == slots.outputs.batch == 1
    assert slots.inputs.tensors == (TensorSpec("x", "float32", (1, 3, -1, -1)),)
    assert slots.inputs.capacities == (3 * 96 * 96 * 4,)
    assert slots.outputs.capacities == (64 * 96 * 4,)
    assert slots.depth == 2 + 3, "each pre worker fills a batch by itself"


def test_large_items_have_few_slots_beside_the_double_buffer() -> None:
    info = ModelInfo(INFO.inputs, INFO.outputs, largest=(64 << 20,))

    slots = plan_slots(pipeline("{resize: {max_side: 1920}},"), started(pre=16), info)

    assert slots.inputs.capacities == (3 * 1920 * 1920 * 4,)
    assert slots.depth == 2 + 2


def test_items_whose_shapes_are_known_before_are_batched() -> None:
    slots = plan_slots(pipeline(LIMITED, batch_size=6), started(), INFO, known=True)

    assert slots.inputs.batch == 6
    assert slots.inputs.capacities == (6 * 3 * 96 * 96 * 4,)
    assert slots.depth == 2


def test_several_sizes_need_the_memory_of_the_largest() -> None:
    slots = plan_slots(pipeline("{letterbox: {sizes: [[64, 96], [32, 128]]}},"), started(), INFO)

    assert slots.inputs.capacities == (3 * 64 * 96 * 4,)


def test_one_size_is_batched_as_ever() -> None:
    spec = pipeline("{resize: {size: [64, 96]}},", batch_size=5)
    info = ModelInfo((PIXELS,), (TensorSpec("y", "float32", (2,)),))

    slots = plan_slots(spec, started(), info)

    assert slots.inputs.tensors == (TensorSpec("x", "float32", (5, 3, 64, 96)),)


@pytest.mark.parametrize(
    ("resize", "said"),
    [
        ("", r"of any size; .*: add `- resize: \{max_side: 2000\}`, or a fixed size"),
        ("{resize: {short_side: 64}},", "of any size; .*: set max_side in `resize short_side=64`"),
        ("{resize: {min_side: 64}},", "of any size; .*: set max_side in `resize min_side=64`"),
        (
            "{resize: {multiple_of: 32}},",
            "of any size; .*: set max_side in `resize mult",
        ),
    ],
)
def test_items_without_a_limit_are_refused_with_the_parameter_that_is_missing(resize, said):
    with pytest.raises(ConfigError, match=said):
        plan_slots(pipeline(resize), started(), INFO)


def test_what_only_shows_in_the_run_is_refused_too() -> None:
    with pytest.raises(TensorMismatchError, match="only known when it runs; give its operators"):
        plan_slots(pipeline('{python: "numpy:asarray"},'), started(), INFO)


def test_one_size_behind_a_function_of_the_users_is_enough() -> None:
    ops = '{python: "numpy:asarray"}, {resize: [64, 96]},'
    info = ModelInfo((PIXELS,), (TensorSpec("y", "float32", (2,)),))

    slots = plan_slots(pipeline(ops), started(), info)

    assert slots.inputs.tensors[0].shape[1:] == (3, 64, 96)


def test_a_batch_of_pictures_of_several_sizes_is_refused() -> None:
    with pytest.raises(ConfigError, match="preprocess: batch_size is 4, but items keep sizes of"):
        plan_slots(pipeline(LIMITED, batch_size=4), started(), INFO)


def test_outputs_that_no_engine_can_tell_the_largest_of_are_refused() -> None:
    info = ModelInfo((PIXELS,), INFO.outputs)

    with pytest.raises(TensorMismatchError, match=r"output y: .* depend on the input"):
        plan_slots(pipeline(LIMITED), started(), info)


def test_too_large_a_limit_is_blamed_on_the_limit() -> None:
    with pytest.raises(BackendError, match="use a smaller max_side or depth"):
        plan_slots(pipeline("{resize: {max_side: 400000}},"), started(), INFO)
