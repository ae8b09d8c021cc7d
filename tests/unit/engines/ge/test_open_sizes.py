"""Models with several image sizes or dims, given items of each."""

from __future__ import annotations

import numpy as np
import pytest

from gepipe.emulator.om import Gears, OmTensor, write_om
from gepipe.errors import ConfigError, TensorMismatchError
from gepipe.tensors import TensorSpec, Variants
from gepipe.unshaped import UnshapedBuffer
from tests.unit.engines.ge.bed import pooled, ramp, reference

SIZES = ((8, 8), (16, 12))
MADE = TensorSpec("", "float32", (3, -1, -1))


def variants(*sizes, complete=True):
    return Variants(
        tuple(TensorSpec("", "float32", (3, *size)) for size in sizes), complete=complete
    )


@pytest.fixture
def model(tmp_path):
    """Write a model of two image sizes in batches of two; its first output is a map."""
    path = tmp_path / "m.om"
    write_om(
        path,
        pooled(tmp_path / "m.onnx", [2, 3, "h", "w"]),
        inputs=[OmTensor("x", "float32", (2, 3, -1, -1), "NCHW")],
        outputs=[
            OmTensor("map", "float32", (2, 2, -1, -1)),
            OmTensor("mean", "float32", (2, 2, 1, 1)),
        ],
        gears=Gears("hw", SIZES),
        output_shapes=[[(2, 2, h, w), (2, 2, 1, 1)] for h, w in SIZES],
    )
    return path


def buffers(engine, batch):
    return {
        spec.name: UnshapedBuffer(np.full(batch * nbytes, 77, np.uint8), spec.row, batch)
        for spec, nbytes in zip(engine.outputs, engine.largest, strict=True)
    }


def test_outputs_lie_at_the_shape_of_each_gear(npu, model, tmp_path) -> None:
    engine = npu().open(model, made=MADE, variants=variants(*SIZES))
    free = pooled(tmp_path / "free.onnx", ["n", 3, "h", "w"])

    assert engine.largest == (2 * 16 * 12 * 4, 2 * 4)
    for height, width in (*SIZES, *reversed(SIZES)):
        x = ramp(5, 3, height, width)
        places = buffers(engine, 5)
        engine.collect(engine.submit({"x": x}, places, 5))
        for name, wanted in reference(free, x=x).items():
            made = places[name].open(places[name].row)
            np.testing.assert_allclose(made, wanted, rtol=1e-5)


def test_two_sizes_at_once_do_not_get_into_each_others_way(npu, model, tmp_path) -> None:
    engine = npu().open(model, made=MADE, variants=variants(*SIZES))
    free = pooled(tmp_path / "free.onnx", ["n", 3, "h", "w"])
    pairs = [(ramp(2, 3, *size), buffers(engine, 2)) for size in SIZES]

    tokens = [engine.submit({"x": x}, places, 2) for x, places in pairs]
    for token, (x, places) in zip(tokens, pairs, strict=True):
        engine.collect(token)
        made = places["map"].open(places["map"].row)
        np.testing.assert_allclose(made, reference(free, x=x)["map"], rtol=1e-5)


def test_a_size_between_the_gears_is_refused(npu, model) -> None:
    engine = npu().open(model, made=MADE, variants=variants(*SIZES))

    with pytest.raises(TensorMismatchError, match=r"\[3, 9, 8\].*\[8, 8\], \[16, 12\]"):
        engine.submit({"x": ramp(1, 3, 9, 8)}, buffers(engine, 1), 1)


def test_a_stage_before_that_makes_another_size_is_refused_at_the_start(npu, model) -> None:
    with pytest.raises(
        ConfigError, match=r"makes \[3, 9, 8\] .*: \[8, 8\], \[16, 12\]; make one that it has"
    ):
        npu().open(model, made=MADE, variants=variants((8, 8), (9, 8)))


@pytest.mark.parametrize("known", [None, variants((16, 16), complete=False)])
def test_a_stage_before_that_makes_any_size_is_told_of_the_gears(npu, model, known) -> None:
    with pytest.raises(
        ConfigError, match=r"sizes of their own; .*\[8, 8\], \[16, 12\]; put `- letterbox: \{sizes:"
    ):
        npu().open(model, made=MADE, variants=known)


def test_dims_of_a_width_take_items_of_each(npu, tmp_path) -> None:
    path, gears = tmp_path / "m.om", ((1, 4), (1, 8), (2, 4), (2, 8))
    write_om(
        path,
        None,
        inputs=[OmTensor("x", "float32", (-1, -1))],
        outputs=[OmTensor("y", "float32", (-1, -1, 3))],
        gears=Gears("dims", gears),
        output_shapes=[[(n, w // 4, 3)] for n, w in gears],
    )
    widths = Variants(tuple(TensorSpec("", "float32", (width,)) for width in (4, 8)), complete=True)
    engine = npu().open(path, made=TensorSpec("", "float32", (-1,)), variants=widths)

    assert engine.gears == (1, 2)
    assert engine.largest == (2 * 3 * 4,)
    for width in (4, 8):
        places = buffers(engine, 3)
        engine.collect(engine.submit({"x": ramp(3, width)}, places, 3))
        assert places["y"].row == (width // 4, 3)
