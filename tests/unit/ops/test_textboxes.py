"""Lines of text in a map of probabilities, against a plain search; and the way back to the page."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gepipe.errors import ConfigError, ItemError
from gepipe.ops.geometry import note
from gepipe.ops.image import CenterCrop, Letterbox, Pad
from gepipe.ops.resize import Resize
from gepipe.ops.textboxes import TextBoxes

AS_DRAWN = TextBoxes(unclip=0, dilate=0)


def lines(op, array, meta=None):
    return op({"map": array}, {} if meta is None else meta)["lines"]


def drawn(*rectangles, size=(96, 160), value=0.9):
    """Return a map with rectangles (x, y, width, height) in it."""
    array = np.zeros(size, np.float32)
    for x, y, width, height in rectangles:
        array[y : y + height, x : x + width] = value
    return array


def plain_lines(array, op):
    """Return bounding box and score of each group of neighbouring pixels, found step by step."""
    height, width = array.shape
    todo = {(y, x) for y in range(height) for x in range(width) if array[y, x] > op.threshold}
    found = []
    while todo:
        group, edge = set(), [todo.pop()]
        while edge:
            y, x = edge.pop()
            group.add((y, x))
            for near in [(y + i, x + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]:
                if near in todo:
                    todo.remove(near)
                    edge.append(near)
        rows, columns = zip(*group, strict=True)
        top, left, bottom, right = min(rows), min(columns), max(rows), max(columns)
        if min(bottom - top, right - left) < max(op.min_size, 1):
            continue
        score = array[top : bottom + 1, left : right + 1].mean()
        if score >= op.confidence:
            found.append((left, top, right, bottom, score))
    return sorted(found)


#: Rectangles in cells of a grid, so that they never touch.
cells = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(0, 2)),
    st.tuples(st.integers(1, 30), st.integers(1, 20), st.sampled_from([0.2, 0.45, 0.6, 1.0])),
    max_size=12,
)


@given(cells)
def test_rectangles_are_found_where_they_are(grid):
    array = np.zeros((96, 160), np.float32)
    for (column, row), (width, height, value) in grid.items():
        x, y = 3 + 40 * column, 3 + 30 * row
        array[y : y + height, x : x + width] = value

    found = lines(AS_DRAWN, array)

    corners = sorted((*line["polygon"][0], *line["polygon"][2], line["score"]) for line in found)
    expected = plain_lines(array, AS_DRAWN)
    assert [each[:4] for each in corners] == [each[:4] for each in expected]
    assert [each[4] for each in corners] == pytest.approx([each[4] for each in expected])


def test_a_turned_line_has_a_turned_polygon():
    array = np.zeros((200, 200), np.float32)
    truth = cv2.boxPoints(((100, 100), (120, 20), 25))
    cv2.fillPoly(array, [truth.astype(np.int32)], 0.8)

    (line,) = lines(AS_DRAWN, array)

    first, second, third, _ = np.array(line["polygon"])
    assert np.degrees(np.arctan2(*(second - first)[::-1])) == pytest.approx(25, abs=1)
    assert np.linalg.norm(second - first) == pytest.approx(121, abs=2)
    assert np.linalg.norm(third - second) == pytest.approx(21, abs=2)
    assert line["score"] == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("angle", range(-90, 91, 5))
def test_polygons_run_clockwise_from_the_top_left(angle):
    array = np.zeros((200, 200), np.float32)
    truth = cv2.boxPoints(((100, 100), (120, 30), angle))
    cv2.fillPoly(array, [truth.astype(np.int32)], 1.0)

    (line,) = lines(TextBoxes(), array)

    points = np.array(line["polygon"])
    assert points.sum(axis=1).argmin() == 0
    following = np.roll(points, -1, axis=0)
    area = (points[:, 0] * following[:, 1] - following[:, 0] * points[:, 1]).sum() / 2
    assert area > 120 * 30  # clockwise where y points down, and grown


def test_lines_grow_by_area_times_unclip_over_perimeter():
    (line,) = lines(TextBoxes(unclip=1.6, dilate=0), drawn((60, 40, 41, 11)))

    by = 40 * 10 * 1.6 / (2 * (40 + 10))
    expected = [[60 - by, 40 - by], [100 + by, 40 - by], [100 + by, 50 + by], [60 - by, 50 + by]]
    assert np.array(line["polygon"]) == pytest.approx(np.array(expected), abs=0.01)


def test_widening_closes_gaps_between_letters():
    array = drawn(*((20 + 10 * i, 40, 9, 12) for i in range(5)))

    assert len(lines(TextBoxes(dilate=0), array)) == 5
    assert len(lines(TextBoxes(dilate=2), array)) == 1


@pytest.mark.parametrize("shape", [(1, 1), (1, 64), (64, 1), (2, 2), (64, 64), (1, 64, 64)])
def test_an_empty_map_has_no_lines(shape):
    assert lines(TextBoxes(), np.zeros(shape, np.float32)) == []


def test_a_map_full_of_text_is_one_line_as_large_as_the_picture():
    (line,) = lines(TextBoxes(), np.ones((1, 64, 96), np.float32), {"height": 64, "width": 96})

    assert line == {"polygon": [[0, 0], [96, 0], [96, 64], [0, 64]], "score": 1.0}


def test_specks_are_no_lines():
    array = drawn((5, 5, 1, 1), (20, 5, 2, 2), (40, 5, 3, 30), (60, 60, 4, 4))

    assert len(lines(TextBoxes(dilate=0), array)) == 1


def test_without_a_least_size_a_thin_line_still_has_an_area():
    array = drawn((5, 5, 1, 1), (20, 5, 1, 20), (40, 5, 20, 1))

    assert lines(TextBoxes(dilate=0, min_size=0), array) == []


@pytest.mark.parametrize("edge", [(0, 30), (130, 30), (60, 0), (60, 84), (0, 0), (130, 84)])
def test_lines_at_the_border_are_cut_off_there(edge):
    (line,) = lines(TextBoxes(), drawn((*edge, 30, 12)), {"height": 96, "width": 160})

    points = np.array(line["polygon"])
    assert points.min() >= 0
    assert (points <= [160, 96]).all()
    assert np.ptp(points, axis=0).min() >= 11


def test_what_is_no_number_is_no_text():
    array = drawn((20, 20, 40, 12), (80, 60, 40, 12))
    clean = lines(TextBoxes(), array)
    array[0:10] = np.nan
    array[90:] = -np.inf

    assert lines(TextBoxes(), array) == clean
    assert lines(TextBoxes(), np.full((96, 160), np.nan, np.float32)) == []
    assert len(lines(TextBoxes(), np.full((96, 160), np.inf, np.float32))) == 1


def test_half_precision_says_the_same():
    array = drawn((20, 20, 40, 12), (80, 60, 40, 12))

    full, half = lines(TextBoxes(), array), lines(TextBoxes(), array.astype(np.float16))

    assert [line["polygon"] for line in full] == [line["polygon"] for line in half]


def test_of_too_many_the_largest_remain():
    array = drawn((5, 5, 20, 8), (5, 40, 60, 12), (90, 70, 40, 10))

    found = lines(TextBoxes(max_lines=2, unclip=0, dilate=0), array)

    assert [line["polygon"][0] for line in found] == [[5, 40], [90, 70]]


def test_a_map_of_noise_is_bounded():
    noise = np.random.default_rng(0).random((736, 736), np.float32)

    assert len(lines(TextBoxes(threshold=0.9, min_size=0, confidence=0), noise)) <= 1000


@pytest.mark.parametrize(
    "steps",
    [
        [Resize(min_side=96, multiple_of=32)],
        [Resize(max_side=128, multiple_of=32)],
        [Letterbox((128, 128))],
        [Letterbox((256, 320), center=False)],
        [CenterCrop((100, 200)), Resize(size=(64, 256))],
        [Pad(border=(8, 24, 40, 0))],
    ],
)
def test_polygons_are_in_pixels_of_the_page(steps):
    page = np.zeros((120, 240, 3), np.float32)
    page[50:70, 60:180] = 1
    meta, image = {}, page
    for step in steps:
        before = image.shape[:2]
        placement = step.place(*before)
        assert placement
        image = step(image, meta)

    (line,) = lines(TextBoxes(unclip=0, threshold=0.5), image[:, :, 0], meta)

    assert (meta["height"], meta["width"]) == (120, 240)
    tolerance = 1.5 / min(meta["scale"])
    expected = [[60, 50], [180, 50], [180, 70], [60, 70]]
    assert np.array(line["polygon"]) == pytest.approx(np.array(expected), abs=tolerance)


def test_what_lies_on_the_bars_of_a_letterbox_is_dropped():
    meta = {}
    note(meta, (50, 100), Letterbox(100).place(50, 100))

    found = lines(TextBoxes(), drawn((10, 2, 50, 8), (10, 45, 50, 8), size=(100, 100)), meta)

    assert len(found) == 1


def test_lines_come_in_reading_order():
    array = drawn((90, 11, 40, 10), (10, 10, 40, 10), (10, 70, 40, 10), (50, 40, 40, 10))

    found = lines(AS_DRAWN, array)

    assert [line["polygon"][0] for line in found] == [[10, 10], [90, 11], [50, 40], [10, 70]]


@pytest.mark.parametrize("shape", [(3, 64, 64), (64,), (0, 64)])
def test_an_output_that_is_no_map_is_told(shape):
    with pytest.raises(ItemError, match="expected a map of probabilities"):
        TextBoxes()({"map": np.zeros(shape, np.float32)}, {})


def test_of_several_outputs_one_must_be_named():
    outputs = {"map": drawn((20, 20, 40, 12)), "other": np.zeros(3, np.float32)}

    with pytest.raises(ConfigError, match="'map', 'other'; say which: output"):
        TextBoxes()(outputs, {})
    assert len(TextBoxes(output="map")(outputs, {})["lines"]) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"threshold": 1.5},
        {"confidence": -0.1},
        {"unclip": -1},
        {"max_lines": 0},
        {"min_size": float("nan")},
    ],
)
def test_values_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must"):
        TextBoxes(**wrong)
