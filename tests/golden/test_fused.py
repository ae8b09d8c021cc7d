"""The fused chain is held to its operators run one by one.

Exact where all pixels are decoded: the table is made by the operators themselves, and the geometry
is the same code. Where a JPEG is decoded at reduced scale the values differ, because the reference
looks at 4 pixels of the original for each of the result (linear interpolation without a prefilter,
which shows aliasing), while the reduced decode averages all of them. On a photo-like picture the
two agree to 1.5 of 255 levels on average and to 64 anywhere, and the fused result is the one that
is nearer to the average over areas.
"""

from __future__ import annotations

import io
import itertools
from dataclasses import replace

import cv2
import numpy as np
import pytest
from PIL import Image

from gepipe.ops.decode import DecodeImage
from gepipe.ops.image import CenterCrop, Letterbox, Pad
from gepipe.ops.plan import plan_pre
from gepipe.ops.resize import Resize
from gepipe.ops.tensor import Cast, Normalize, ToTensor
from gepipe.tensors import TensorSpec
from gepipe.unshaped import UnshapedBuffer

MEAN_LEVELS, MAX_LEVELS = 1.5, 64.0

GEOMETRIES = {
    "none": [],
    "exact": [Resize(size=(60, 80))],
    "up": [Resize(size=(300, 400))],
    "nearest": [Resize(size=(60, 80), interpolation="nearest")],
    "short side and crop": [Resize(short_side=64), CenterCrop(56)],
    "crop first": [CenterCrop((100, 120)), Resize(size=50)],
    "letterbox": [Letterbox(64)],
    "letterbox corner": [Letterbox((64, 90), center=False, fill=3)],
    "pad": [Resize(long_side=70), Pad(80, fill=9, center=True)],
    "multiples": [Resize(min_side=160, max_side=200, multiple_of=32)],
    "rounded as it is": [Resize(multiple_of=32)],
    "letterbox of sizes": [Letterbox(sizes=((64, 90), (160, 224)))],
    "pad of sizes": [Resize(long_side=70), Pad(sizes=(60, 75, 80))],
}
TENSORS = {
    "planar": [Normalize(127, 128), ToTensor()],
    "one value a channel": [
        Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "1/255"),
        ToTensor(),
    ],
    "interleaved": [Normalize((1, 2, 3), (4, 5, 6)), ToTensor(layout="nhwc")],
    "half": [Normalize(127, 128), ToTensor(dtype="float16")],
    "double": [Normalize(127, 128), ToTensor(dtype="float64")],
    "bytes": [ToTensor(dtype="uint8")],
    "signed bytes": [Normalize(128, 1), ToTensor(layout="nhwc", dtype="int8")],
    "int64": [ToTensor(dtype="int64")],
    "cast last": [Normalize(3, 7), ToTensor(), Cast("int16")],
    "cast alone": [Cast("float32")],
    "nothing": [],
}


def photo(height, width, seed=3):
    """A photo-like picture: smooth areas, edges, fine texture."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (6, 8, 3), np.uint8)
    image = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    cv2.circle(image, (width // 3, height // 2), height // 4, (250, 240, 20), -1, cv2.LINE_AA)
    cv2.rectangle(image, (width // 2, 5), (width - 9, height // 3), (10, 30, 60), -1)
    image = cv2.GaussianBlur(image, (0, 0), max(height, width) / 400)  # no lens is sharper
    return np.clip(image + rng.normal(0, 1, image.shape), 0, 255).astype(np.uint8)


def encoded(image, kind=".jpg"):
    return cv2.imencode(kind, image, [cv2.IMWRITE_JPEG_QUALITY, 92])[1].tobytes()


def both(ops, data):
    """Rows of the fused and of the one-by-one program, which must note the same facts."""
    value, meta = data, {}
    for op in ops:
        value = op(value, meta)
    results = []
    for fuse in (True, False):
        program = plan_pre(ops, fuse=fuse)
        program.setup()
        row, noted = np.full(value.shape, 77, value.dtype), {}
        program(data, noted, {"x": row})
        assert noted == meta
        results.append(row)
        assert np.array_equal(opened(program, data, value), row)
    assert np.array_equal(results[1], value)
    return results


def opened(program, data, value):
    """What the program writes into room for a row of any shape, 100 bytes more than it needs."""
    memory = np.full(value.nbytes + 100, 77, np.uint8)
    room = UnshapedBuffer(memory, TensorSpec("x", value.dtype.name, (-1,) * value.ndim), 1)
    program(data, {}, {"x": room})
    assert room.row == value.shape
    assert (memory[value.nbytes :] == 77).all()
    return memory[: value.nbytes].view(value.dtype).reshape(value.shape)


@pytest.mark.parametrize(
    ("geometry", "tensor"), list(itertools.product(GEOMETRIES, TENSORS)), ids=lambda name: name
)
@pytest.mark.parametrize("color", ["rgb", "bgr"])
def test_fused_is_exact_when_all_pixels_are_decoded(color, geometry, tensor):
    ops = [DecodeImage(color=color, scale="full"), *GEOMETRIES[geometry], *TENSORS[tensor]]

    fused, reference = both(ops, encoded(photo(150, 200)))

    assert np.array_equal(fused, reference)


@pytest.mark.parametrize("kind", [".png", ".jpg"])
def test_fused_is_exact_for_grey(kind):
    for layout in ("nchw", "nhwc"):
        ops = [DecodeImage(color="gray", scale="full"), Resize(size=64), Normalize(1, 2)]

        fused, reference = both([*ops, ToTensor(layout=layout)], encoded(photo(150, 200), kind))

        assert np.array_equal(fused, reference)


@pytest.mark.parametrize("size", [(720, 1280), (719, 1281), (1280, 720), (1000, 1000)])
@pytest.mark.parametrize("geometry", ["short side and crop", "letterbox", "exact"])
@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
def test_a_reduced_decode_stays_close_to_the_reference(color, geometry, size):
    ops = [DecodeImage(color=color), *GEOMETRIES[geometry], Normalize(0, 1), ToTensor()]

    fused, reference = both(ops, encoded(photo(*size)))

    difference = np.abs(fused - reference)
    assert difference.mean() <= MEAN_LEVELS
    assert difference.max() <= MAX_LEVELS


@pytest.mark.parametrize("size", [(720, 1280), (719, 1281), (683, 1024), (1001, 1003)])
@pytest.mark.parametrize("geometry", ["short side and crop", "letterbox", "exact"])
def test_a_reduced_decode_is_nearer_to_the_average_over_areas(geometry, size):
    data, steps, tensor = encoded(photo(*size)), GEOMETRIES[geometry], TENSORS["bytes"]
    fused, reference = both([DecodeImage(), *steps, *tensor], data)
    averaging = [
        replace(step, interpolation="area") if hasattr(step, "interpolation") else step
        for step in steps
    ]

    ideal, _ = both([DecodeImage(scale="full"), *averaging, *tensor], data)

    def distance(row):
        return np.abs(row.astype(int) - ideal).mean()

    assert distance(fused) < distance(reference)


@pytest.mark.parametrize("interpolation", ["cubic", "area"])
@pytest.mark.parametrize("size", [(720, 1280), (719, 1281)])
def test_other_interpolations_stay_close_too(interpolation, size):
    ops = [DecodeImage(), Resize(size=(90, 160), interpolation=interpolation), *TENSORS["bytes"]]

    fused, reference = both(ops, encoded(photo(*size)))

    assert np.abs(fused.astype(int) - reference).mean() <= MEAN_LEVELS


@pytest.mark.parametrize("geometry", ["none", "up", "nearest", "crop first"])
def test_nothing_is_reduced_where_the_target_does_not_allow_it(geometry):
    ops = [DecodeImage(), *GEOMETRIES[geometry], *TENSORS["planar"]]

    fused, reference = both(ops, encoded(photo(150, 200)))

    assert np.array_equal(fused, reference)


@pytest.mark.parametrize("size", [(600, 900), (599, 901)])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_and_reduced_decode_go_together(orientation, size):
    block = Image.Exif()
    block[0x0112] = orientation
    buffer = io.BytesIO()
    Image.fromarray(photo(*size)).save(buffer, "JPEG", quality=92, exif=block)
    ops = [DecodeImage(), Resize(size=(100, 220)), Normalize(0, 1), ToTensor()]

    fused, reference = both(ops, buffer.getvalue())

    assert np.abs(fused - reference).mean() <= MEAN_LEVELS
