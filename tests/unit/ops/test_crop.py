"""Parts cut out of pictures: their place, size and filling; and the order in which one reads."""

from __future__ import annotations

import math
import pickle

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gepipe.errors import ConfigError, ItemError
from gepipe.ops.crop import Crop, Whole
from gepipe.ops.outline import Outline, page_turn, reading_rows
from gepipe.ops.parts import Part

TEXT = Crop(height=48, widths=(320, 480, 640))


def picture(height=120, width=200):
    """Return a picture of which every pixel is another one: its place."""
    rows, columns = np.mgrid[:height, :width]
    return np.dstack([rows, columns, np.full_like(rows, 7)]).astype(np.uint8)


def cut(op, facts, image=None):
    image = picture() if image is None else image
    before, meta = image.copy(), {"part": facts}
    made = op(Part(lambda: image, facts), meta)
    assert np.array_equal(image, before)
    assert made.shape[:2] == op.part_size(facts)
    return made, meta


# --- which parts there are ---


def test_the_parts_are_the_entries_of_the_only_list_of_boxes():
    boxes = [{"class": 1, "score": 0.5, "box": [1, 2, 3, 4]}, {"class": 2, "box": [0, 0, 9, 9]}]
    record = {"count": 2, "detections": boxes, "words": ["a"]}

    assert Crop().key(record) == "detections"
    assert Crop().parts(record, {}) == boxes
    assert Crop().parts(record, {})[0] is not boxes[0]


def test_of_several_lists_one_must_be_named():
    record = {"people": [{"box": [0, 0, 1, 1]}], "cars": [{"box": [0, 0, 2, 2]}]}

    with pytest.raises(ConfigError, match="'people', 'cars'; say which: of"):
        Crop().parts(record, {})
    assert Crop("cars").parts(record, {}) == record["cars"]


@pytest.mark.parametrize(
    "record",
    [{}, {"top_k": [{"class": 1}]}, 5, {"box": [1, 2, 3, 4]}, {"names": ["a"]}],
)
def test_a_record_without_boxes_is_told(record):
    with pytest.raises(ConfigError, match="made no list of boxes"):
        Crop().parts(record, {})


def test_what_was_found_instead_is_told_with_its_types():
    with pytest.raises(ConfigError, match="but 'names': list, 'count': int; put yolo"):
        Crop().parts({"names": ["a"], "count": 3}, {})


def test_an_empty_list_beside_the_boxes_is_none_of_them():
    boxes = [{"box": [0, 0, 1, 1]}]

    assert Crop().key({"tags": [], "boxes": boxes, "more": ()}) == "boxes"
    assert Crop().parts({"tags": [], "boxes": []}, {}) == []


def test_an_entry_without_a_place_fails_alone():
    boxes = [{"class": 1}, {"box": [0, 0, 1, 1]}]

    assert Crop().parts({"boxes": boxes}, {}) == boxes
    assert Crop("boxes").parts({"boxes": tuple(boxes)}, {}) == boxes


def test_a_function_that_returned_nothing_fails_its_item():
    with pytest.raises(ItemError, match="returned None"):
        Crop().parts(None, {})


def test_a_picture_without_boxes_has_no_parts():
    assert Crop().parts({"lines": []}, {}) == []


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"box": [1, 2, 3]},
        {"box": [1, 2, 3, float("nan")]},
        {"box": [1, 2, 3, 10**400]},
        {"box": "1234"[:3]},
        {"polygon": [[0, 0], [1, 0], [1, 1]]},
        {"polygon": [[0, 0], [1, 0], [1, 1], [0]]},
        {"polygon": None},
    ],
)
def test_a_part_without_a_place_fails_alone(facts):
    assert Crop().part_size(facts) == (1, 1)
    assert TEXT.part_size(facts) == (48, 320)
    with pytest.raises(ItemError, match="expected a polygon of four points"):
        Crop()(Part(picture, facts), {})


# --- boxes ---


def test_a_box_gives_its_pixels():
    made, meta = cut(Crop(), {"box": [10.4, 20.6, 50.2, 60.5]})

    assert np.array_equal(made, picture()[21:60, 10:50])
    assert meta["filled"] == [40, 40]


def test_what_lies_outside_repeats_the_edge():
    made, _ = cut(Crop(), {"box": [-5, 110, 15, 130]})

    padded = cv2.copyMakeBorder(picture(), 0, 10, 5, 0, cv2.BORDER_REPLICATE)
    assert np.array_equal(made, padded[110:130, 0:20])


@given(
    st.lists(st.floats(-300, 500), min_size=4, max_size=4),
    st.sampled_from([0.0, 0.1, 1.0, -0.2]),
    st.sampled_from([Crop(), TEXT]),
)
def test_every_box_gives_what_part_size_says(box, margin, op):
    op = Crop(op.of, margin, op.height, op.widths)

    made, meta = cut(op, {"box": box})

    assert made.dtype == np.uint8
    assert min(made.shape) >= 1
    filled, width = meta["filled"]
    assert 1 <= filled <= width == made.shape[1]


def test_a_margin_is_added_on_each_side():
    made, _ = cut(Crop(margin=0.1), {"box": [50, 50, 90, 70]})

    assert np.array_equal(made, picture()[48:72, 46:94])


@pytest.mark.parametrize("op", [Crop(), TEXT])
@pytest.mark.parametrize(
    "facts",
    [
        {"box": [0, 0, 1e6, 1e6]},
        {"box": [0, 0, 1e9, 20]},
        {"polygon": [[-1e12, 0], [1e12, 0], [1e12, 1e12], [0, 1e12]]},
    ],
)
def test_a_part_of_unreasonable_size_fails(op, facts):
    with pytest.raises(ItemError, match="over the limit of 120,000,000 pixels") as caught:
        op(Part(picture, facts), {})

    assert caught.value.kind == "too_large"


@pytest.mark.parametrize("op", [Crop(), TEXT])
@pytest.mark.parametrize(
    "polygon",
    [
        [[5, 5]] * 4,
        [[0, 0], [10, 0], [20, 0], [30, 0]],
        [[5, 5], [5, 5], [5, 20], [5, 20]],
        [[0, 0], [10, 10], [0, 0], [10, 10]],
        [[0, 0], [40_000, 0], [40_000, 20], [0, 20]],
        [[500, 500], [600, 500], [600, 520], [500, 520]],
    ],
)
def test_a_polygon_that_encloses_nothing_still_gives_a_picture(op, polygon):
    made, _ = cut(op, {"polygon": polygon})

    assert made.size


def test_colours_change_places_where_the_next_model_wants_it():
    facts = {"box": [0, 0, 9, 5]}
    image = picture()

    as_is = Crop()(Part(lambda: image, facts, "bgr"), {})
    same = Crop(color="bgr")(Part(lambda: image, facts, "bgr"), {})
    other = Crop(color="rgb")(Part(lambda: image, facts, "bgr"), {})
    from_gray = Crop(color="rgb")(Part(lambda: image[:, :, :1], facts, "gray"), {})

    assert np.array_equal(as_is, same)
    assert np.array_equal(other, as_is[:, :, ::-1])
    assert other.flags.c_contiguous
    assert np.array_equal(from_gray, np.repeat(as_is[:, :, :1], 3, axis=2))


# --- polygons ---


def turned_page(angle):
    """Return a page with a mark in the top left of a turned line, and the line's polygon."""
    line = np.full((40, 160, 3), 200, np.uint8)
    line[:20, :40] = (255, 0, 0)
    matrix = cv2.getRotationMatrix2D((80, 20), -angle, 1)
    matrix[:, 2] += [120, 130]
    page = cv2.warpAffine(line, matrix, (400, 300), borderValue=(60, 60, 60))
    corners = np.array([[0, 0, 1], [160, 0, 1], [160, 40, 1], [0, 40, 1]]) @ matrix.T
    return page, corners.tolist()


@pytest.mark.parametrize("angle", [-40, -15, 0, 3, 25, 44])
def test_a_turned_line_is_made_level(angle):
    page, polygon = turned_page(angle)

    made, _ = cut(Crop(), {"polygon": polygon}, page)

    assert abs(made.shape[0] - 40) <= 1
    assert abs(made.shape[1] - 160) <= 1
    assert made[4:16, 4:36].mean(axis=(0, 1)) == pytest.approx([255, 0, 0], abs=4)
    assert made[4:36, 46:156].mean(axis=(0, 1)) == pytest.approx([200, 200, 200], abs=2)


@pytest.mark.parametrize(("width", "is_turned"), [(40, False), (27, False), (26, True), (10, True)])
def test_a_line_that_stands_upright_is_turned(width, is_turned):
    polygon = [[50, 30], [50 + width, 30], [50 + width, 70], [50, 70]]
    made, _ = cut(Crop(), {"polygon": polygon})

    straight = picture()[30:70, 50 : 50 + width]
    expected = np.rot90(straight) if is_turned else straight
    assert made.shape == expected.shape
    inner = np.abs(made.astype(int) - expected)[1:-1, 1:-1]
    assert inner.max() <= 1


TALL = [[50, 10], [70, 10], [70, 110], [50, 110]]


@pytest.mark.parametrize(
    ("upright", "turns"), [("down", [90]), ("up", [270]), ("both", [90, 270]), ("keep", [None])]
)
def test_a_line_that_stands_upright_is_read_as_told(upright, turns):
    op = Crop(upright=upright)
    level = {"polygon": [[0, 0], [90, 0], [90, 20], [0, 20]], "score": 0.9}

    *parts, last = op.parts({"lines": [{"polygon": TALL, "score": 0.5}, level]}, {})

    assert last == level
    assert [part.get("turned") for part in parts] == turns
    assert all(part["polygon"] == TALL and part["score"] == 0.5 for part in parts)
    straight = picture()[10:110, 50:70]
    for part, turn in zip(parts, turns, strict=True):
        made, _ = cut(op, part)
        expected = {None: straight, 90: np.rot90(straight), 270: np.rot90(straight, -1)}[turn]
        assert made.shape == expected.shape
        assert np.abs(made.astype(int) - expected)[1:-1, 1:-1].max() <= 1


def test_what_an_entry_itself_calls_turned_turns_nothing():
    level = {"box": [0, 0, 10, 90], "turned": 270}

    made, _ = cut(Crop(), level)

    assert Crop().parts({"lines": [level]}, {}) == [level]
    assert made.shape == (90, 10, 3)


def test_a_box_that_stands_upright_is_not_turned():
    made, _ = cut(Crop(), {"box": [50, 10, 60, 110]})

    assert made.shape == (100, 10, 3)


# --- text ---


@pytest.mark.parametrize(
    ("size", "filled", "width"),
    [
        ((24, 100), 200, 320),
        ((48, 320), 320, 320),
        ((48, 321), 321, 480),
        ((10, 100), 480, 480),
        ((10, 500), 640, 640),  # squeezed
        ((50, 34), 33, 320),
    ],
)
def test_lines_are_scaled_to_the_height_and_filled_up_to_a_width(size, filled, width):
    height, across = size
    image = np.full((120, 600, 3), 10, np.uint8)
    polygon = [[0, 0], [across, 0], [across, height], [0, height]]

    made, meta = cut(TEXT, {"polygon": polygon}, image)

    assert made.shape == (48, width, 3)
    assert meta["filled"] == [filled, width]
    assert (made[:, :filled] == 10).all()
    assert (made[:, filled:] == 127).all()


def test_the_filling_may_be_another_value():
    made, _ = cut(Crop(height=8, widths=(64,), fill=255), {"box": [0, 0, 16, 16]})

    assert (made[:, 8:] == 255).all()


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"height": 48}, "height and widths together"),
        ({"widths": (320,)}, "height and widths together"),
        ({"height": 0, "widths": (320,)}, "at least 1"),
        ({"height": 48, "widths": (320, 0)}, "at least 1"),
        ({"margin": -0.5}, "margin must lie"),
        ({"margin": float("nan")}, "margin must lie"),
        ({"fill": 256}, "fill must lie"),
    ],
)
def test_values_that_make_no_sense_are_refused(wrong, text):
    with pytest.raises(ValueError, match=text):
        Crop(**wrong)


def test_what_is_known_of_the_shape_beforehand():
    assert Crop().output_spec(None).shape == (-1, -1, 3)
    assert TEXT.output_spec(None).shape == (48, -1, 3)
    assert Crop(height=48, widths=(320,)).output_spec(None).shape == (48, 320, 3)
    assert pickle.loads(pickle.dumps(TEXT)) == TEXT
    shapes = TEXT.variants(None)
    assert shapes.complete
    assert [spec.shape for spec in shapes.specs] == [(48, w, 3) for w in (640, 480, 320)]
    assert not Crop().variants(None).is_bounded


def test_the_whole_picture_is_one_part():
    image = picture()

    assert Whole().parts({"any": 1}, {}) == [{}]
    assert Whole()(Part(lambda: image, {}), {}) is image
    assert Whole.single


# --- reading order ---


def outline(x, y, width=60, height=20):
    return Outline.of({"box": [x, y, x + width, y + height]})


def test_rows_are_read_from_above_and_from_left_to_right():
    found = reading_rows([outline(200, 52), outline(0, 100), outline(0, 48), outline(100, 50)])

    assert found == [[2, 3, 0], [1]]


def test_lines_of_half_a_height_apart_stand_on_two_rows():
    assert reading_rows([outline(0, 0), outline(80, 9)]) == [[0, 1]]
    assert reading_rows([outline(0, 0), outline(80, 11)]) == [[0], [1]]


def test_a_staircase_does_not_become_one_row():
    assert len(reading_rows([outline(70 * i, 6 * i) for i in range(12)])) > 1


@pytest.mark.parametrize("angle", [-10, -4, 0, 4, 10])
def test_a_page_that_is_turned_is_read_in_the_same_order(angle):
    sine, cosine = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    outlines = []
    for row in range(4):
        for column in range(3):
            around = ((0, 0), (150, 0), (150, 20), (0, 20))
            corners = [(200 * column + x, 50 * row + y) for x, y in around]
            polygon = [[x * cosine - y * sine, x * sine + y * cosine] for x, y in corners]
            outlines.append(Outline.of({"polygon": polygon}))

    assert reading_rows(outlines) == [[3 * row + i for i in range(3)] for row in range(4)]


@pytest.mark.parametrize("angle", [-5, 0, 5])
@pytest.mark.parametrize("turned", [90, 270])
def test_a_page_that_lies_on_its_side_is_read_in_the_same_order(angle, turned):
    total = math.radians(turned + angle)
    sine, cosine = math.sin(total), math.cos(total)
    outlines = []
    for row in range(4):
        for column in range(3):
            around = ((0, 0), (150, 0), (150, 20), (0, 20))
            corners = [(200 * column + x, 50 * row + y) for x, y in around]
            polygon = [[x * cosine - y * sine, x * sine + y * cosine] for x, y in corners]
            first = min(range(4), key=lambda i, its=polygon: sum(its[i]))  # as text_boxes begins
            outlines.append(Outline.of({"polygon": polygon[first:] + polygon[:first]}))

    assert all(each.is_upright for each in outlines)
    assert page_turn(outlines, [turned] * 12) == turned
    assert reading_rows(outlines, turned) == [[3 * row + i for i in range(3)] for row in range(4)]


def test_some_lines_that_stand_upright_turn_no_page():
    outlines = [outline(0, 0, width=100), outline(0, 50, width=20, height=90)]

    assert page_turn(outlines, [0, 90]) == 0
    assert page_turn([], []) == 0


some_places = st.tuples(st.integers(0, 500), st.integers(0, 500), st.integers(1, 99))


@given(st.lists(some_places, max_size=30))
def test_every_outline_is_read_once(places):
    outlines = [outline(x, y, height=height) for x, y, height in places]

    rows = reading_rows(outlines)

    assert sorted(index for row in rows for index in row) == list(range(len(places)))
    assert all(rows)
