from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gepipe.errors import ConfigError, ItemError
from gepipe.ops.decode import DecodeImage
from gepipe.ops.geometry import note
from gepipe.ops.image import CenterCrop, Letterbox, Pad
from gepipe.ops.plan import plan_pre
from gepipe.ops.resize import Resize
from gepipe.ops.tensor import Normalize, ToTensor
from gepipe.ops.user import Python
from gepipe.tensors import TensorSpec, Variants

SIDES = st.integers(1, 3000)


def test_sizes_are_height_then_width_and_one_number_is_a_square(files):
    image = files.picture(48, 64)

    assert Resize(size=(20, 30))(image, {}).shape == (20, 30, 3)
    assert Resize(size=20)(image, {}).shape == (20, 20, 3)
    assert CenterCrop((10, 20))(image, {}).shape == (10, 20, 3)
    assert Letterbox((10, 20))(image, {}).shape == (10, 20, 3)
    assert Pad((50, 70))(image, {}).shape == (50, 70, 3)


@pytest.mark.parametrize(
    ("op", "before", "after"),
    [
        (Resize(short_side=256), (720, 1280), (256, 455)),
        (Resize(short_side=256), (1280, 720), (455, 256)),
        (Resize(long_side=416), (300, 451), (277, 416)),
        (Resize(short_side=1), (1, 5000), (1, 5000)),
        (Resize(long_side=4), (1, 5000), (1, 4)),
        (Resize(min_side=736), (300, 451), (736, 1106)),
        (Resize(min_side=736), (800, 900), (800, 900)),
        (Resize(max_side=960), (1200, 900), (960, 720)),
        (Resize(max_side=960), (100, 900), (100, 900)),
        (Resize(min_side=736, max_side=1000), (300, 900), (333, 1000)),  # max_side goes first
        (Resize(short_side=800, max_side=1333), (480, 640), (800, 1067)),
        (Resize(short_side=800, max_side=1333), (480, 1280), (500, 1333)),
        (Resize(multiple_of=32), (47, 49), (32, 64)),
        (Resize(multiple_of=32), (1, 1000), (32, 992)),
        (Resize(min_side=736, multiple_of=32), (191, 384), (736, 1472)),
        (Resize(max_side=1000, multiple_of=32), (2000, 3000), (672, 992)),
        (Resize(long_side=1000, multiple_of=32), (2000, 3000), (672, 992)),
    ],
)
def test_the_other_side_is_rounded_and_never_zero(op, before, after):
    assert op.place(*before).canvas == after


@given(
    low=st.integers(1, 900),
    high=st.integers(900, 2000),
    step=st.sampled_from([1, 8, 32, 48]),
    height=st.integers(1, 5000),
    width=st.integers(1, 5000),
)
def test_a_resize_with_limits_stays_within_them_and_maps_back_exactly(
    low, high, step, height, width
):
    op, meta = Resize(min_side=low, max_side=high, multiple_of=step), {}

    placement = op.place(height, width)
    note(meta, (height, width), placement)

    (largest,) = op.variants(Variants((TensorSpec("", "uint8", (-1, -1, 3)),))).specs
    for side, most, extent, scale in zip(
        placement.canvas, largest.shape, (height, width), meta["scale"], strict=False
    ):
        assert side % step == 0
        assert step <= side <= most <= high
        assert side / scale == pytest.approx(extent, rel=1e-12)


@pytest.mark.parametrize("op", [Letterbox, Pad])
def test_the_smallest_of_several_sizes_that_holds_an_image_is_taken(op):
    sizes = ((64, 96), (96, 64), (96, 96), (200, 200))

    assert op(sizes=sizes).place(60, 90).canvas == (64, 96)
    assert op(sizes=sizes).place(90, 60).canvas == (96, 64)
    assert op(sizes=sizes).place(70, 90).canvas == (96, 96)
    assert op(sizes=sizes).place(100, 10).canvas == (200, 200)


def test_an_image_that_no_size_holds_shrinks_as_little_as_can_be_or_is_refused():
    sizes = ((64, 96), (96, 64))

    assert Letterbox(sizes=sizes).place(640, 960).canvas == (64, 96)
    assert Letterbox(sizes=sizes).place(960, 640).canvas == (96, 64)
    with pytest.raises(
        ItemError, match=r"larger than all sizes \[64, 96\], \[96, 64\]; use letter"
    ):
        Pad(sizes=sizes).place(65, 65)


def test_a_strip_does_not_grow_into_gigabytes():
    with pytest.raises(ItemError, match=r"1x65000 .* would become 256x16640000") as caught:
        Resize(short_side=256).place(1, 65000)

    assert caught.value.kind == "too_large"
    assert Resize(short_side=20_000).place(30_000, 30_000).canvas == (20_000, 20_000)


def test_resize_and_centre_crop_agree_with_the_reference_of_the_sample_classifier(files):
    image = files.picture(301, 455)
    height, width = image.shape[:2]
    ratio = 256 / min(height, width)
    expected = cv2.resize(image, (round(width * ratio), round(height * ratio)))
    top, left = (expected.shape[0] - 224) // 2, (expected.shape[1] - 224) // 2
    expected = expected[top : top + 224, left : left + 224]

    assert (CenterCrop(224)(Resize(short_side=256)(image, {}), {}) == expected).all()


@pytest.mark.parametrize("interpolation", ["nearest", "linear", "cubic", "area"])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float16", "int32", "int64"])
def test_every_dtype_and_number_of_channels_can_be_resized(interpolation, channels, dtype):
    image = np.full((8, 10, channels), 100, dtype)

    result = Resize(size=(5, 7), interpolation=interpolation)(image, {})

    assert result.shape == (5, 7, channels)
    assert result.dtype == dtype
    assert np.abs(result - 100.0).max() < 1e-3  # cubic weights do not sum to one exactly


def test_a_crop_larger_than_the_image_says_what_to_do(files):
    with pytest.raises(ItemError, match="short_side") as caught:
        CenterCrop(100)(files.picture(48, 64), {})

    assert caught.value.kind == "shape"
    assert "48x64" in str(caught.value)


def test_an_image_larger_than_its_padding_says_what_to_do(files):
    with pytest.raises(ItemError, match="letterbox") as caught:
        Pad(50)(files.picture(48, 64), {})

    assert caught.value.kind == "shape"


def test_letterbox_fills_and_centres():
    image = np.full((10, 20, 3), 200, np.uint8)

    middle, corner = Letterbox(40)(image, {}), Letterbox(40, center=False, fill=7)(image, {})

    assert (middle[10:30] == 200).all()
    assert (middle[:10] == 114).all()
    assert (middle[30:] == 114).all()
    assert (corner[:20] == 200).all()
    assert (corner[20:] == 7).all()


def test_letterbox_can_leave_small_images_small():
    result = Letterbox(40, scale_up=False)(np.full((10, 20, 3), 200, np.uint8), {})

    assert (result == 200).sum() == 10 * 20 * 3


def test_a_border_has_four_widths():
    result = Pad(border=(1, 2, 3, 4), fill=9)(np.zeros((5, 6, 1), np.uint8), {})

    assert result.shape == (8, 13, 1)
    assert (result[1:6, 3:9] == 0).all()
    assert (result != 0).sum() == 8 * 13 - 30


@given(SIDES, SIDES, st.integers(1, 700), st.booleans(), st.booleans())
def test_letterboxed_points_map_back_exactly(height, width, side, center, scale_up):
    placement = Letterbox(side, center=center, scale_up=scale_up).place(height, width)
    meta = {}
    note(meta, (height, width), placement)

    for axis, extent in enumerate((height, width)):
        first = placement.offset[axis]
        last = first + placement.size[axis]
        assert 0 <= first <= last <= side
        assert (first - meta["pad"][axis]) / meta["scale"][axis] == pytest.approx(0, abs=1e-6)
        assert (last - meta["pad"][axis]) / meta["scale"][axis] == pytest.approx(extent, rel=1e-9)


def test_points_map_back_through_a_whole_chain(files):
    image, meta = files.picture(60, 100), {}
    for op in (Resize(short_side=32), CenterCrop(24), Pad(30, center=True), Letterbox((60, 70))):
        image = op(image, meta)

    # The middle of the original stays in the middle through centred operators, up to rounding.
    middle = [(extent / 2 - meta["pad"][a]) / meta["scale"][a] for a, extent in enumerate((60, 70))]
    assert middle == pytest.approx([30, 50], abs=2)
    assert (meta["height"], meta["width"]) == (60, 100)


@pytest.mark.parametrize(
    "make",
    [
        Resize,
        lambda: Resize(size=3, short_side=4),
        lambda: Resize(size=(0, 3)),
        lambda: Resize(short_side=-1),
        lambda: CenterCrop(0),
        Pad,
        lambda: Pad(size=3, border=1),
        lambda: Pad(border=(1, -2, 0, 0)),
        lambda: Pad(size=3, sizes=(4, 5)),
        lambda: Pad(sizes=(4, (5, 0))),
        Letterbox,
        lambda: Letterbox(size=3, sizes=(4, 5)),
        lambda: Resize(max_side=0),
        lambda: Resize(multiple_of=-32),
        lambda: Resize(size=3, short_side=4, max_side=9),
    ],
)
def test_parameters_that_do_not_fit_are_refused(make):
    with pytest.raises(ValueError, match=r"must|exactly one"):
        make()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Resize(size=64, multiple_of=32), "size settles what multiple_of is for"),
        (lambda: Resize(size=64, max_side=32), "size settles what max_side is for"),
        (lambda: Resize(short_side=64, min_side=32), "short_side settles what min_side is for"),
        (lambda: Resize(long_side=64, min_side=32), "long_side settles what min_side is for"),
        (lambda: Resize(long_side=64, max_side=32), "long_side settles what max_side is for"),
        (lambda: Resize(min_side=64, max_side=32), "min_side is 64, above max_side, which is 32"),
        (lambda: Resize(max_side=16, multiple_of=32), "multiple_of is 32, above max_side"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize(
    ("ops", "shapes", "complete"),
    [
        ([Resize(max_side=100)], [(3, 100, 100)], False),
        ([Resize(max_side=100, multiple_of=32)], [(3, 96, 96)], False),
        ([Resize(short_side=64, max_side=100)], [(3, 100, 100)], False),
        ([Resize(long_side=100, multiple_of=32)], [(3, 96, 96)], False),
        ([Resize(long_side=90), Pad(border=2)], [(3, 94, 94)], False),
        ([Resize(max_side=90), Resize(multiple_of=32)], [(3, 96, 96)], False),
        ([Letterbox(sizes=((4, 6), (6, 4)))], [(3, 4, 6), (3, 6, 4)], True),
        ([Letterbox(sizes=(4, (4, 4))), Pad(border=1)], [(3, 6, 6)], True),
        ([Resize(size=7)], [(3, 7, 7)], True),
        ([Resize(max_side=100), CenterCrop(50)], [(3, 50, 50)], False),
        ([], [(3, -1, -1)], False),
        ([Resize(short_side=64)], [(3, -1, -1)], False),
        ([Resize(min_side=64)], [(3, -1, -1)], False),
        ([Resize(max_side=90), Resize(min_side=64)], [(3, -1, -1)], False),
    ],
)
def test_the_largest_result_is_known_from_the_parameters(ops, shapes, complete):
    program = plan_pre([DecodeImage(), *ops, Normalize(), ToTensor()])

    specs = tuple(TensorSpec("", "float32", shape) for shape in shapes)
    step = next((op.multiple_of or 1 for op in ops[-1:] if isinstance(op, Resize)), 1)
    assert program.variants() == Variants(specs, complete=complete, step=step)


def test_nothing_is_known_of_what_the_users_function_returns():
    assert plan_pre([DecodeImage(), Python("numpy:asarray")]).variants() is None


def test_bytes_in_place_of_an_image_say_what_is_missing():
    with pytest.raises(ItemError, match="put decode_image first"):
        Resize(size=3)(b"abc", {})


def test_shapes_are_known_before_the_start():
    unknown = TensorSpec("", "uint8", (-1, -1, 3))

    assert Resize(short_side=256).output_spec(unknown).shape == (-1, -1, 3)
    assert Resize(size=9).output_spec(unknown).shape == (9, 9, 3)
    assert CenterCrop(224).output_spec(unknown).shape == (224, 224, 3)
    assert Letterbox((8, 9)).output_spec(unknown).shape == (8, 9, 3)
    assert Pad(border=1).output_spec(TensorSpec("", "uint8", (4, 5, 3))).shape == (6, 7, 3)
    assert Resize(short_side=9).output_spec(None) is None


@pytest.mark.parametrize("op", [Resize(size=(4, 6)), Letterbox((4, 6)), Pad((4, 6))])
def test_a_fixed_size_is_known_behind_the_users_function(op):
    mine = Python("numpy:asarray")

    behind = plan_pre([DecodeImage(), mine, op, Normalize(), ToTensor()])
    assert behind.output_specs() == TensorSpec("", "float32", (-1, 4, 6))
    assert plan_pre([DecodeImage(), mine, op]).output_specs() is None, "its type is not"
    assert plan_pre([DecodeImage(), mine, op]).variants() is None
    assert plan_pre([DecodeImage(), op, mine]).output_specs() is None


def test_a_size_that_never_fits_is_known_before_the_first_item():
    with pytest.raises(ConfigError, match="smaller than size"):
        CenterCrop(300).output_spec(TensorSpec("", "uint8", (224, 224, 3)))
