"""Boxes of detectors: decoding, non-maximum suppression, the way back to the original picture."""

from __future__ import annotations

import json
import pickle

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gepipe.errors import ConfigError, ItemError
from gepipe.ops import boxes
from gepipe.ops.boxes import Boxes
from gepipe.ops.decode import DecodeImage
from gepipe.ops.detection import Yolo
from gepipe.ops.fused import FusedImage
from gepipe.ops.geometry import note
from gepipe.ops.image import CenterCrop, Letterbox, Pad
from gepipe.ops.resize import Resize

COUNT = 3  # classes

#: Boxes on a coarse grid, so that many overlap and many scores are equal.
coordinate = st.integers(0, 12).map(float)
some_boxes = st.lists(
    st.tuples(
        coordinate, coordinate, coordinate, coordinate, st.integers(0, 8), st.integers(0, COUNT - 1)
    ),
    max_size=24,
)


def table(found, layout):
    """Write boxes (x, y, w, h, score in eighths, class) as a model of that layout would."""
    rows = np.zeros((len(found), 5 + COUNT), np.float32)
    for row, (x, y, w, h, score, label) in zip(rows, found, strict=True):
        row[:4], row[4], row[5 + label] = (x, y, w, h), 1, score / 8
    if layout == "v5":
        return rows
    rows = np.delete(rows, 4, axis=1)
    if layout == "v8_rows":
        return rows
    if layout == "v8":
        return np.ascontiguousarray(rows.T)
    corners = np.hstack([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2])
    last = [rows[:, 4:].max(1, keepdims=True), rows[:, 4:].argmax(1)[:, None].astype(np.float32)]
    return np.hstack([corners, *last])


def detections(op, array, meta=None):
    return op({"output0": array}, {} if meta is None else meta)["detections"]


def plain_iou(a, b):
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    return width * height / union if union > 0 else 0.0


# --- decoding ---


@given(some_boxes)
def test_all_layouts_say_the_same_of_the_same_boxes(found):
    results = [
        detections(Yolo(0.25, layout=layout, nms="none"), table(found, layout))
        for layout in ("v5", "v8", "v8_rows", "end2end")
    ]

    assert results[0] == results[1] == results[2] == results[3]
    expected = sum(score >= 2 and w > 0 and h > 0 for _, _, w, h, score, _ in found)
    assert len(results[0]) == expected


@given(some_boxes)
def test_detections_come_with_the_highest_score_first_and_ties_in_the_order_of_the_output(found):
    made = boxes.decode(table(found, "v8"), "v8", 0.125)

    places = [i for i, each in enumerate(found) if each[4] >= 1]
    places.sort(key=lambda i: -found[i][4])  # stable
    assert made.scores.tolist() == [found[i][4] / 8 for i in places]
    centres = (made.corners[:, :2] + made.corners[:, 2:]) / 2
    assert centres.tolist() == [list(found[i][:2]) for i in places]


def test_an_axis_of_one_in_front_says_nothing():
    array = table([(5, 6, 2, 3, 4, 1)] * 9, "v8")

    assert detections(Yolo(), array[None]) == detections(Yolo(), array)


def test_the_score_of_v5_is_objectness_times_class():
    row = np.array([[5, 5, 4, 4, 0.5, 0.9, 0.2]], np.float32)

    (one,) = detections(Yolo(0.4, layout="v5"), row)

    assert one["score"] == pytest.approx(0.45)
    assert detections(Yolo(0.46, layout="v5"), row) == []


def test_a_place_counts_for_the_lower_class_on_a_tie():
    column = np.array([[5], [5], [4], [4], [0.5], [0.5]], np.float32)

    assert [each["class"] for each in detections(Yolo(layout="v8"), column)] == [0]


@pytest.mark.parametrize("layout", ["v5", "v8", "v8_rows", "end2end"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_boxes_that_are_no_numbers_are_left_out(layout, bad):
    good = (4, 4, 2, 2, 8, 1)
    rows = table([good, good, good], "v5")
    rows[0, 0] = bad
    rows[1, 5:] = np.nan
    array = rows
    if layout == "end2end":
        array = table([good] * 3, layout)
        array[0, 0], array[1, 4] = bad, np.nan
    elif layout != "v5":
        array = np.delete(rows, 4, axis=1)
        array = array.T if layout == "v8" else array

    assert len(detections(Yolo(layout=layout, nms="none"), array)) == 1


def test_only_the_wanted_classes_are_listed(tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("cat\ndog\nbird\n")
    found = [(2, 2, 2, 2, 8, 0), (6, 6, 2, 2, 6, 1), (9, 9, 2, 2, 4, 2)]
    op = pickle.loads(pickle.dumps(Yolo(labels=labels, classes=("bird", 0), layout="v8")))
    op.setup()

    assert [each["label"] for each in detections(op, table(found, "v8"))] == ["cat", "bird"]
    with pytest.raises(ConfigError, match="no class is called 'brid'; did you mean 'bird'"):
        Yolo(labels=labels, classes=("brid",)).setup()
    with pytest.raises(ConfigError, match="'bird'; give labels"):
        Yolo(classes=("bird",)).setup()


def test_a_record_is_plain_json(tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("cat\ndog\nbird\n")

    record = Yolo(labels=labels)({"output0": table([(5, 6, 2, 3, 4, 1)] * 9, "v8")}, {})

    one = {"class": 1, "label": "dog", "score": 0.5, "box": [4.0, 4.5, 6.0, 7.5]}
    assert json.loads(json.dumps(record)) == {"detections": [one]}


# --- which layout it is ---


@pytest.mark.parametrize(
    ("shape", "count", "layout"),
    [
        ((84, 8400), None, "v8"),
        ((84, 8400), 80, "v8"),
        ((25200, 85), 80, "v5"),
        ((25200, 85), None, "v5"),
        ((8400, 84), 80, "v8_rows"),
        ((300, 6), 80, "end2end"),
        ((6300, 6), 1, "v5"),
        ((5, 8400), 1, "v8"),
    ],
)
def test_the_layout_is_told_by_shape_and_labels(tmp_path, shape, count, layout):
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join(map(str, range(count or 0))))

    assert Yolo(labels=labels if count else None).layout_of(shape, "output0") == layout


def test_what_cannot_be_told_apart_is_asked():
    with pytest.raises(ConfigError, match=r"one class \(v5\), or boxes that are final"):
        Yolo().layout_of((300, 6), "output0")


@pytest.mark.parametrize(
    ("layout", "shape"),
    [("end2end", (300, 7)), ("v8", (4, 8400)), ("v5", (100, 5)), ("auto", (4, 8400))],
)
def test_an_output_of_another_layout_is_refused(layout, shape):
    with pytest.raises(ConfigError, match="not of the layout"):
        Yolo(layout=layout).layout_of(shape, "output0")


def test_labels_of_another_model_are_refused(tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("cat\ndog\n")

    with pytest.raises(ConfigError, match="names 2 classes, but the output 'output0' has 80"):
        detections(Yolo(labels=labels), np.zeros((84, 100), np.float32))


@pytest.mark.parametrize("shape", [(84,), (2, 84, 100)])
def test_an_output_that_is_no_table_is_the_items_failure(shape):
    with pytest.raises(ItemError, match="for one item; expected a table of boxes") as caught:
        detections(Yolo(), np.zeros(shape, np.float32))

    assert caught.value.kind == "shape"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Yolo(1.5),
        lambda: Yolo(iou=-0.1),
        lambda: Yolo(top_k=0),
        lambda: Yolo(max_detections=0),
        lambda: Yolo(sigma=0),
        lambda: Yolo(classes=()),
    ],
)
def test_parameters_that_make_no_sense_are_refused(make):
    with pytest.raises(ValueError, match=r"must|empty"):
        make()


# --- suppression ---


def plain_nms(found: Boxes, iou, limit, *, agnostic):
    """Greedy suppression, box by box."""
    kept: list[int] = []
    for i in range(len(found.scores)):
        if len(kept) == limit:
            break
        if all(
            (not agnostic and found.classes[i] != found.classes[j])
            or plain_iou(found.corners[i].tolist(), found.corners[j].tolist()) <= iou
            for j in kept
        ):
            kept.append(i)
    return kept


@settings(max_examples=300)
@given(some_boxes, st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.integers(1, 30), st.booleans())
def test_suppression_agrees_with_a_slow_plain_one(found, iou, limit, agnostic):
    made = boxes.decode(table(found, "v8"), "v8", 0.125)

    kept = boxes.suppress(made, iou, limit, agnostic=agnostic)

    assert kept.tolist() == plain_nms(made, iou, limit, agnostic=agnostic)


@pytest.mark.parametrize(("count", "limit"), [(64, 300), (65, 300), (400, 300), (400, 70)])
def test_suppression_of_many_boxes_agrees_too(count, limit):
    random = np.random.default_rng(count)
    corners = random.uniform(0, 100, (count, 4))
    corners[:, 2:] = corners[:, :2] + random.uniform(5, 25, (count, 2))
    made = Boxes(corners, np.linspace(1, 0.5, count), random.integers(0, 2, count))

    kept = boxes.suppress(made, 0.4, limit, agnostic=False).tolist()

    assert kept == plain_nms(made, 0.4, limit, agnostic=False)
    assert 10 < len(kept) < count


def plain_soft(found: Boxes, sigma, confidence):
    scores = found.scores.astype(float).tolist()
    rest = [i for i in range(len(scores)) if scores[i] >= confidence]
    result = []
    while rest:
        best = max(rest, key=lambda i: (scores[i], -i))
        rest.remove(best)
        result.append((best, scores[best]))
        for i in rest:
            if found.classes[i] == found.classes[best]:
                share = plain_iou(found.corners[best].tolist(), found.corners[i].tolist())
                scores[i] *= float(np.exp(-(share**2) / sigma))
        rest = [i for i in rest if scores[i] >= confidence]
    return result


@given(some_boxes, st.sampled_from([0.1, 0.5, 2.0]))
def test_soft_suppression_agrees_with_a_slow_plain_one(found, sigma):
    made = boxes.decode(table(found, "v8"), "v8", 0.25)

    soft = boxes.soften(made, sigma, 0.25)

    expected = plain_soft(made, sigma, 0.25)
    assert soft.scores.tolist() == pytest.approx([score for _, score in expected])
    assert soft.corners.tolist() == [made.corners[i].tolist() for i, _ in expected]


def test_the_ways_of_suppression_differ_as_they_say():
    same = [(5, 5, 4, 4, 8, 0), (5, 5, 4, 4, 7, 0), (5, 5, 4, 4, 6, 1), (5, 6, 4, 4, 4, 0)]
    array = table(same, "v8")

    def scores(nms, **more):
        return [each["score"] for each in detections(Yolo(layout="v8", nms=nms, **more), array)]

    assert scores("none") == [1, 0.875, 0.75, 0.5]
    assert scores("class") == [1, 0.75]
    assert scores("agnostic") == [1]
    assert scores("class", iou=0.7) == [1, 0.75, 0.5]  # the last overlaps the first by 0.6
    assert scores("none", top_k=2) == [1, 0.875]
    assert scores("class", max_detections=1) == [1]
    assert scores("soft", sigma=100.0) == pytest.approx([1, 0.866, 0.75, 0.496], abs=0.001)


# --- the way back ---

sides = st.integers(1, 2000)
chains = st.lists(
    st.one_of(
        st.builds(Letterbox, st.tuples(sides, sides), center=st.booleans(), scale_up=st.booleans()),
        st.builds(Resize, st.tuples(sides, sides)),
        st.builds(lambda side: Resize(short_side=side), st.integers(1, 300)),
        st.builds(lambda widths: Pad(border=widths), st.tuples(*[st.integers(0, 50)] * 4)),
    ),
    max_size=4,
)


@given(sides, sides, chains, st.tuples(*[st.floats(0, 1)] * 4))
def test_a_box_comes_back_through_any_chain_of_operators(height, width, chain, shares):
    meta, size = {"height": height, "width": width}, (height, width)
    original = np.array([[shares[0] * width, shares[1] * height, width, height]])
    moved = original.copy()
    for op in chain:
        try:
            placement = op.place(*size)
        except ItemError:
            continue
        note(meta, size, placement)
        for x, y in ((0, 1), (2, 3)):
            moved[:, x] = moved[:, x] * placement.size[1] / size[1] + placement.offset[1]
            moved[:, y] = moved[:, y] * placement.size[0] / size[0] + placement.offset[0]
        size = placement.canvas

    back = boxes.unplaced(moved, meta)

    np.testing.assert_allclose(back, original, rtol=0, atol=1e-6 * max(height, width))


@given(st.integers(30, 3000), st.integers(30, 3000), st.integers(30, 700))
def test_letterbox_and_its_inverse_are_exact(height, width, side):
    meta = {"height": height, "width": width}
    placement = Letterbox(side).place(height, width)
    note(meta, (height, width), placement)
    (top, left), (rows, columns) = placement.offset, placement.size
    field = Boxes(
        np.array([[left, top, left + columns, top + rows]], np.float64),
        np.ones(1),
        np.zeros(1, int),
    )

    (one,) = boxes.to_original(field, meta).rows()

    assert one[2] == [0, 0, width, height]


def test_a_centre_crop_maps_back_and_what_lies_outside_is_cut_off():
    image, meta = np.zeros((100, 200, 3), np.uint8), {}
    CenterCrop(50)(image, meta)
    found = [(10, 10, 4, 4, 8, 0), (0, 0, 200, 400, 6, 1), (-200, 0, 20, 20, 4, 0)]

    made = detections(Yolo(layout="v8"), table(found, "v8"), meta)

    assert [each["box"] for each in made] == [[83.0, 33.0, 87.0, 37.0], [0.0, 0.0, 175.0, 100.0]]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_are_those_of_the_upright_picture_however_it_was_stored_and_decoded(orientation):
    from io import BytesIO

    from PIL import Image

    upright = np.full((1000, 1400, 3), 40, np.uint8)
    upright[300:500, 200:900] = 255
    turn = {
        1: (), 2: (0,), 3: (3,), 4: (1,), 5: (5,), 6: (2,), 7: (6,), 8: (4,),
    }[orientation]  # fmt: skip
    stored = Image.fromarray(upright)
    for each in turn:  # the inverse of what the orientation asks for
        stored = stored.transpose(each)
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = BytesIO()
    stored.save(file, "JPEG", quality=95, exif=exif)
    meta: dict[str, object] = {}

    small, _ = FusedImage(DecodeImage(), (Letterbox(160),))(file.getvalue(), meta)

    bright = (small.max(axis=2) > 150).astype(np.uint8)
    x, y, w, h = cv2.boundingRect(bright)
    found = np.array([[x + w / 2], [y + h / 2], [w], [h], [1], [0], [0]], np.float32)
    (one,) = detections(Yolo(layout="v8"), found, meta)
    assert one["box"] == pytest.approx([200, 300, 900, 500], abs=9)  # a pixel here is 8.75 there
