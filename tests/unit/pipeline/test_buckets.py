"""The sizes that stand for any size on a device whose models are compiled for theirs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gepipe.ops.image import Pad
from gepipe.ops.padding import CutPadding
from gepipe.ops.results import Identity
from gepipe.pipeline.buckets import bucketed, sizes_up_to
from gepipe.spec import loads
from tests.support import onnx_model


@given(
    most=st.integers(4, 60),
    step=st.sampled_from([1, 8, 32]),
    height=st.floats(0.01, 1),
    width=st.floats(0.01, 1),
)
def test_each_picture_has_a_size_that_is_not_much_larger(most, step, height, width) -> None:
    most *= step
    sides = [max(1, round(part * most / step)) * step for part in (height, width)]
    sizes = sizes_up_to(most, most, step)

    canvas = Pad(sizes=sizes).place(*sides).canvas

    assert len(sizes) <= 24
    assert all(side % step == 0 for size in sizes for side in size)
    assert all(extent <= side <= most for side, extent in zip(canvas, sides, strict=True))
    rest = most / 8 if most in sides else most / 4
    grown = [min(most, side + rest + step) for side in sides]
    assert canvas[0] * canvas[1] <= grown[0] * grown[1]


def test_sizes_that_no_picture_has_are_left_out() -> None:
    assert (480, 480) in sizes_up_to(1920, 1920, 32)
    assert (480, 480) not in sizes_up_to(1920, 1920, 32, least=736)
    assert (480, 960) in sizes_up_to(1920, 1920, 32, least=736)


@pytest.fixture
def pipeline(tmp_path):
    def write(ops, shape=("n", 3, "h", "w"), post="[]"):
        path = onnx_model(
            tmp_path / "m.onnx",
            [("Identity", ["x"], ["y"], {})],
            {"x": ("float32", list(shape))},
            {"y": ("float32", list(shape))},
        )
        return loads(
            f"""
stages:
  - {{name: preprocess, ops: [{ops}]}}
  - {{name: inference, model: {path}}}
  - {{name: postprocess, ops: {post}}}
"""
        )

    return write


LIMITED = "decode_image, {resize: {max_side: 640, multiple_of: 32}}"


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_pictures_are_padded_behind_the_last_resize_and_maps_cut(pipeline, layout) -> None:
    shape = ("n", 3, "h", "w") if layout == "nchw" else ("n", "h", "w", 3)
    spec = bucketed(pipeline(f"{LIMITED}, {{to_tensor: {layout}}}", shape))

    assert [type(op).__name__ for op in spec.pre.ops] == [
        "DecodeImage", "Resize", "Pad", "ToTensor",
    ]  # fmt: skip
    assert spec.pre.ops[2] == Pad(sizes=sizes_up_to(640, 640, 32), fill=114)
    assert spec.post.ops == (CutPadding(), Identity())


def test_the_operators_of_post_come_behind_the_cut(pipeline) -> None:
    spec = bucketed(pipeline(f"{LIMITED}, to_tensor", post="[softmax]"))

    assert [type(op).__name__ for op in spec.post.ops] == ["CutPadding", "Softmax"]


@pytest.mark.parametrize(
    ("ops", "shape"),
    [
        (f"{LIMITED}, to_tensor", ("n", 3, 640, 640)),
        (f"{LIMITED}, to_tensor", ("n", 3, 640, "w")),
        (f"{LIMITED}, to_tensor", ("n", "d")),
        ("decode_image, {resize: 640}, to_tensor", ("n", 3, "h", "w")),
        ("decode_image, {letterbox: {sizes: [640, 320]}}, to_tensor", ("n", 3, "h", "w")),
        ("decode_image, {resize: {short_side: 640}}, to_tensor", ("n", 3, "h", "w")),
        ("decode_image, to_tensor", ("n", 3, "h", "w")),
        ('{python: "numpy:asarray"}', ("n", 3, "h", "w")),
    ],
)
def test_nothing_changes_where_there_is_one_size_or_a_list_or_no_limit(pipeline, ops, shape):
    spec = pipeline(ops, shape)

    assert bucketed(spec) is spec
