from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gepipe.errors import ConfigError
from gepipe.ops.geometry import note
from gepipe.ops.image import CenterCrop, Letterbox, Pad
from gepipe.ops.padding import CutPadding
from gepipe.ops.resize import Resize

SIDES = st.integers(1, 400)


def placed(op, height, width):
    """Return what is noted of a picture, and a map of the canvas that is 1 where it lies."""
    meta = {}
    placement = op.place(height, width)
    note(meta, (height, width), placement)
    inside = np.zeros(placement.canvas, np.float32)
    (top, left), (rows, columns) = placement.offset, placement.size
    inside[max(top, 0) : top + rows, max(left, 0) : left + columns] = 1
    return meta, inside


@given(SIDES, SIDES, st.booleans(), st.booleans())
def test_just_the_picture_is_left(height, width, center, scale_up) -> None:
    op = Letterbox(sizes=((64, 96), (96, 64), (128, 128)), center=center, scale_up=scale_up)
    meta, inside = placed(op, height, width)

    cut = CutPadding()({"mask": inside[None]}, meta)["mask"]

    assert cut.shape[1:] == op.place(height, width).size
    assert cut.all()
    corner = [(0 - pad) / scale for pad, scale in zip(meta["pad"], meta["scale"], strict=True)]
    assert corner == pytest.approx([0, 0], abs=1e-6)
    assert meta["canvas"] == list(cut.shape[1:])


@given(SIDES, SIDES)
def test_a_smaller_map_keeps_each_cell_that_the_picture_touches(height, width) -> None:
    meta, inside = placed(Letterbox((64, 96)), height, width)
    small = inside.reshape(16, 4, 24, 4).max(axis=(1, 3))

    cut = CutPadding()({"mask": small[..., None]}, meta)["mask"]  # NHWC

    assert cut.all()
    assert cut.size == small.sum()


def test_maps_of_several_strides_are_cut_at_one_place() -> None:
    meta, _ = placed(Pad((64, 96)), 17, 30)
    outputs = {
        "fine": np.zeros((2, 32, 48)),
        "coarse": np.zeros((1, 8, 12)),
        "mean": np.zeros((2, 1, 1)),
        "scores": np.zeros(5),
    }

    cut = CutPadding()(outputs, meta)

    assert {name: array.shape for name, array in cut.items()} == {
        "fine": (2, 12, 16),
        "coarse": (1, 3, 4),
        "mean": (2, 1, 1),
        "scores": (5,),
    }
    assert meta["canvas"] == [24, 32]


@pytest.mark.parametrize("op", [Resize(size=(64, 96)), CenterCrop((10, 20))])
def test_where_nothing_was_put_around_nothing_is_cut(op) -> None:
    meta, inside = placed(op, 40, 60)
    before = dict(meta)

    assert CutPadding()({"mask": inside}, meta)["mask"].shape == inside.shape
    assert meta == before


def test_outputs_without_a_map_or_a_picture_stay() -> None:
    scores = np.zeros((1000,))

    assert CutPadding()({"y": scores}, {})["y"] is scores
    assert CutPadding()({"y": scores}, placed(Letterbox(64), 9, 9)[0])["y"] is scores


def test_an_output_that_cannot_be_cut_is_told() -> None:
    meta, inside = placed(Letterbox(64), 9, 19)

    with pytest.raises(ConfigError, match="no output 'mark'; did you mean 'mask'"):
        CutPadding("mark")({"mask": inside}, meta)
    with pytest.raises(ConfigError, match=r"shape \[7\], and the model was given \[64, 64\]"):
        CutPadding("y")({"mask": inside, "y": np.zeros(7)}, meta)
    with pytest.raises(ConfigError, match="put it first"):
        CutPadding()([1, 2], meta)
