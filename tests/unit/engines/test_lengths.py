"""Batches of texts on ONNX Runtime: executed at the shortest length, with the same results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gepipe.engines.engine import EngineOptions
from gepipe.engines.lengths import Lengths
from gepipe.engines.onnx import OnnxEngine
from gepipe.tensors import TensorSpec

STEPS = Lengths("attention_mask", (4, 8, 16))
MADE = TensorSpec("", "int64", (16,))
WIDTH = 3


def text_model(path: Path, batch: int | str = "N", length: int | str = "L") -> Path:
    """Write a model with a vector a token, one a text, and the length that it was executed at."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    names = ("input_ids", "attention_mask")
    floats = TensorProto.FLOAT
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["ids"], to=floats),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=floats),
        helper.make_node("Mul", ["ids", "mask"], ["kept"]),
        helper.make_node("Unsqueeze", ["kept", "last"], ["column"]),
        helper.make_node("Mul", ["column", "weights"], ["tokens"]),
        helper.make_node("ReduceSum", ["tokens", "first"], ["sum"], keepdims=0),
        helper.make_node("Mul", ["mask", "zero"], ["zeros"]),
        helper.make_node("Add", ["zeros", "one"], ["ones"]),
        helper.make_node("ReduceSum", ["ones", "first"], ["executed"], keepdims=1),
    ]
    numpy = onnx.numpy_helper.from_array
    constants = [
        numpy(np.array([-1]), "last"),
        numpy(np.array([1]), "first"),
        numpy(np.arange(1, WIDTH + 1, dtype=np.float32), "weights"),
        numpy(np.float32(0), "zero"),
        numpy(np.float32(1), "one"),
    ]
    graph = helper.make_graph(
        nodes,
        "text",
        [helper.make_tensor_value_info(n, TensorProto.INT64, [batch, length]) for n in names],
        [
            helper.make_tensor_value_info("tokens", floats, [batch, length, WIDTH]),
            helper.make_tensor_value_info("sum", floats, [batch, WIDTH]),
            helper.make_tensor_value_info("executed", floats, [batch, 1]),
        ],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    path.write_bytes(model.SerializeToString())
    return path


def batch(*lengths):
    ids = np.full((len(lengths), 16), 5, np.int64)
    mask = np.array([[1] * n + [0] * (16 - n) for n in lengths], np.int64)
    return {"input_ids": ids, "attention_mask": mask}


def execute(engine, inputs, count):
    rows = len(inputs["input_ids"])
    outputs = {
        "tokens": np.full((rows, 16, WIDTH), 77, np.float32),
        "sum": np.full((rows, WIDTH), 77, np.float32),
        "executed": np.full((rows, 1), 77, np.float32),
    }
    engine.collect(engine.submit(inputs, outputs, count))
    return outputs


@pytest.mark.parametrize(
    ("lengths", "executed"),
    [((1,), 4), ((3, 4), 4), ((5, 2), 8), ((9, 1, 1), 16), ((16,), 16), ((0, 0), 4)],
)
def test_the_smallest_length_that_holds_all_is_executed(lengths, executed):
    assert STEPS.of(batch(*lengths)["attention_mask"]) == executed


@pytest.mark.parametrize("size", ["N", 4])
def test_short_batches_are_cut_and_put_back(tmp_path, size):
    path = text_model(tmp_path / "m.onnx", size)
    engine = OnnxEngine.open(path, EngineOptions(made=MADE, lengths=STEPS))
    whole = OnnxEngine.open(path, EngineOptions(made=MADE))

    for lengths, executed in (((2, 3, 1), 4), ((16, 1, 1), 16), ((7, 8, 1), 8), ((1, 2, 9), 16)):
        inputs = batch(*lengths, 16)  # the last row holds no item
        made, right = execute(engine, inputs, 3), execute(whole, inputs, 3)

        assert made["executed"][:3, 0].tolist() == [executed] * 3
        for name in ("tokens", "sum"):
            np.testing.assert_array_equal(made[name][:3], right[name][:3])
            assert (made[name][3:] == 77).all(), "a row beyond the count was touched"


def test_outputs_that_grow_with_the_length_are_known_from_what_pre_makes(tmp_path):
    path = text_model(tmp_path / "m.onnx")

    engine = OnnxEngine.open(path, EngineOptions(made=MADE))

    assert engine.outputs[0].shape == (-1, 16, WIDTH)
    assert OnnxEngine.open(path, EngineOptions()).outputs[0].shape == (-1, -1, WIDTH)


def test_a_model_of_one_length_is_not_cut(tmp_path):
    path = text_model(tmp_path / "m.onnx", length=16)
    engine = OnnxEngine.open(path, EngineOptions(made=MADE, lengths=STEPS))

    assert execute(engine, batch(2, 3), 2)["executed"].tolist() == [[16], [16]]
