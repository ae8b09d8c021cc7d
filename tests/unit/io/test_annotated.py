"""Sinks that show results beside their inputs: drawn pictures, and COCO JSON."""

from __future__ import annotations

import json
import os
import pickle
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest

from gepipe.errors import ConfigError, GepipeError, ItemError
from gepipe.io.annotated import AnnotatedSink
from gepipe.io.coco import CocoSink
from gepipe.io.drawing import annotate
from gepipe.io.failures import Failure
from gepipe.io.files import FileReader
from gepipe.io.manifest import Manifest
from gepipe.io.original import Origin, Original
from gepipe.io.outputs import Outputs
from gepipe.io.plates import Style, color_of
from gepipe.io.sink import Record, Sink
from gepipe.io.source import Entry
from gepipe.ops.decode import DecodeImage
from gepipe.ops.resize import Resize
from gepipe.spec.normal import difference

ONE = {"class": 0, "label": "person", "score": 0.75, "box": [20.4, 30.0, 80.0, 90.0]}
FOUND = {"detections": [ONE, {**ONE, "class": 1, "label": "dog", "score": 0.5}]}


def grey(height=120, width=160, value=128):
    return np.full((height, width, 3), value, np.uint8)


# --- drawing ---


@pytest.mark.parametrize("background", [0, 128, 255, "noise"])
def test_a_box_stands_out_on_any_background(background):
    image = grey(400, 400, 0 if background == "noise" else background)
    if background == "noise":
        image = np.random.default_rng(0).integers(0, 255, image.shape, dtype=np.uint8)

    annotate(image, {"detections": [{**ONE, "box": [100, 100, 300, 300]}]}, Style())

    column = image[200, 90:110].astype(int)
    coloured = np.flatnonzero((column == color_of(0)).all(axis=1))
    assert coloured.size >= 1
    for beside in (coloured[0] - 1, coloured[-1] + 1):  # the edge is dark on both sides
        assert (column[beside] == 0).all()


def colours_of(image):
    return {tuple(colour) for colour in image.reshape(-1, 3).tolist()}


def test_a_track_keeps_its_colour_whatever_class_it_is_taken_for():
    pictures = [grey(), grey()]
    for number, picture in enumerate(pictures):
        annotate(picture, {"detections": [{**ONE, "class": number, "track": 7}]}, Style())

    for picture in pictures:
        assert color_of(7) in colours_of(picture)
        assert not {color_of(0), color_of(1)} & colours_of(picture)


def test_one_that_is_not_followed_has_the_colour_of_its_class():
    picture = grey()
    annotate(picture, {"detections": [{**ONE, "track": None}]}, Style())

    assert color_of(0) in colours_of(picture)


def test_counts_stand_in_the_corner():
    plain, counted = grey(), grey()
    annotate(plain, {"detections": []}, Style())
    annotate(counted, {"detections": [], "counts": {"person": 3}}, Style())

    changed = np.argwhere((plain != counted).any(axis=2))
    assert (plain == 128).all()
    assert changed.min(axis=0).tolist() == [0, 0]
    assert changed[:, 0].max() < 30


def test_lines_of_text_are_outlined_and_what_was_read_stands_beside_them():
    picture = grey(200, 400, 255)
    turned = [[60, 100], [200, 90], [201, 110], [61, 120]]

    annotate(picture, {"lines": [{"polygon": turned, "text": "Total 12", "score": 1}]}, Style())

    inside = picture[102:108, 100:160]
    assert (inside == 255).all()  # the letters themselves stay visible
    rows, columns = np.nonzero((picture == color_of(0)).all(axis=2))
    assert rows.min() < 85  # the plate above it
    assert columns.min() >= 58


def test_labels_of_lines_hide_no_other_line():
    picture = grey(200, 400, 255)
    polygons = [[[20, y], [380, y], [380, y + 20], [20, y + 20]] for y in (20, 44, 68)]
    for x1, y1, x2, y2 in ((40, 30, 360, 34), (40, 54, 360, 58), (40, 78, 360, 82)):
        picture[y1:y2, x1:x2] = 0
    before = picture.copy()

    lines = [{"polygon": points, "text": "abc"} for points in polygons]
    annotate(picture, {"lines": [lines[0], {**lines[1], "text": ""}, lines[2]]}, Style())

    assert (picture[54:58, 40:360] == before[54:58, 40:360]).all()


def test_the_best_label_lies_on_top_where_there_is_no_room_for_all():
    crowd = [{**ONE, "class": number, "score": number / 10, "box": [5, 5, 60, 20]}
             for number in range(10)]  # fmt: skip
    picture, alone = grey(24, 70), grey(24, 70)
    annotate(picture, {"detections": crowd}, Style())
    annotate(alone, {"detections": [crowd[-1]]}, Style())

    plate = (alone == color_of(9)).all(axis=2)
    plate[:, :5] = plate[:, 60:] = False
    assert (picture[plate] == alone[plate]).mean() > 0.9


@pytest.mark.parametrize(
    "entry",
    [
        {"box": [10, 10, 60, 40], "failure": {"kind": "x"}},
        {"polygon": [[10, 10], [60, 10], [60, 40], [10, 40]], "text": "日本"},
        {"box": [10, 10, 60, 40], "top_k": [{"class": 2, "label": "beagle", "score": 0.5}]},
    ],
)
def test_parts_of_any_kind_are_drawn(entry):
    picture = grey()
    annotate(picture, {"parts": [entry]}, Style())

    assert color_of(0) in colours_of(picture)


def test_an_object_is_labelled_with_what_a_further_model_found():
    plain, refined = grey(), grey()
    further = {**ONE, "top_k": [{"class": 9, "label": "person", "score": 0.75}]}
    annotate(plain, {"detections": [ONE]}, Style())
    annotate(refined, {"detections": [further]}, Style())

    assert (plain == refined).all()  # the same words in the colour of the object's own class


@pytest.mark.parametrize("scale", [1, 4])
def test_sizes_grow_with_the_picture(scale):
    image = grey(300 * scale, 300 * scale)
    box = [x * scale for x in (50, 100, 250, 250)]

    annotate(image, {"detections": [{**ONE, "box": box}]}, Style())

    coloured = (image == color_of(0)).all(axis=2)
    line = coloured[175 * scale].sum() / 2
    above = 100 * scale - np.flatnonzero(coloured.any(axis=1))[0]  # the plate, over the box
    assert scale <= line <= 2 * scale
    assert 12 * scale <= above <= 20 * scale


@pytest.mark.parametrize(
    "box", [[0, 0, 160, 120], [0, 0, 5, 5], [155, 115, 160, 120], [150, 0, 160, 120], [3, 3, 4, 4]]
)
@pytest.mark.parametrize("size", [(120, 160), (16, 20), (1, 1)])
def test_labels_stay_in_the_picture(box, size):
    image = grey(*size)

    annotate(image, {"detections": [{**ONE, "box": box}]}, Style())

    assert image.shape == (*size, 3)
    assert (image != 128).any()


def test_labels_do_not_hide_each_other():
    apart, stacked = grey(400, 400), grey(400, 400)
    same = {**ONE, "box": [100, 100, 300, 300]}

    annotate(apart, {"detections": [same]}, Style())
    annotate(stacked, {"detections": [same, {**same, "class": 1, "score": 0.5}]}, Style())

    def plate(image, number):
        mask = (image == color_of(number)).all(axis=2)
        return np.flatnonzero(mask.sum(axis=1) > 12)

    best = plate(apart, 0)
    assert np.isin(best[best < 95], plate(stacked, 0)).all()  # the best keeps its place
    assert (plate(stacked, 1) > best[best < 95].max()).any()  # the other went elsewhere


def test_a_label_that_the_font_lacks_becomes_the_number_of_its_class():
    drawn = []
    for label in ("猫", None, "#0"):
        image = grey()
        entry = {**ONE, "label": label, "class": 0}
        annotate(image, {"detections": [entry]}, Style())
        drawn.append(image)

    assert (drawn[0] == drawn[2]).all()
    assert (drawn[1] == drawn[2]).all()


def test_a_font_file_is_taken_and_a_wrong_one_refused(tmp_path):
    (tmp_path / "font.ttf").write_bytes(b"no font")

    with pytest.raises(ConfigError, match=r"font: cannot read .*font\.ttf"):
        annotate(grey(), FOUND, Style(font=str(tmp_path / "font.ttf")))


def test_classes_of_a_picture_become_its_caption():
    image = grey()

    annotate(image, {"top_k": [{"class": 3, "label": "cat", "score": 0.9}]}, Style())

    assert (image[:8, :8] == color_of(3)).any()
    assert (image[60:] == 128).all()


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({}, "; got dict"),
        ({"text": "a", "squares": []}, "; it holds 'text', 'squares'"),
        ([1], "; got list"),
        ({"detections": [{"class": 1}]}, "; one of these is not: KeyError: 'score'"),
        ({"top_k": None}, "; one of these is not: TypeError: "),
        (5, "; got int"),
    ],
)
def test_a_result_with_nothing_to_draw_is_the_items_failure(result, said):
    with pytest.raises(ItemError, match=said) as caught:
        annotate(grey(), result, Style())

    assert caught.value.kind == "not_drawable"


# --- the input once more ---


def test_the_picture_is_read_again_as_pre_saw_it_at_full_size_and_in_colour(tmp_path):
    image = np.zeros((40, 60, 3), np.uint8)
    image[:, :30] = (255, 0, 0)  # blue
    path = tmp_path / "a.png"
    cv2.imwrite(str(path), image)

    original = Original.of(FileReader(), [DecodeImage(color="gray"), Resize(size=8)])
    again = pickle.loads(pickle.dumps(original)).picture(os.fsencode(path))

    assert (again == image).all()
    assert Original.of(FileReader(), []).decode.color == "bgr"
    assert Original.of(FileReader(), [DecodeImage(exif="ignore")]).decode.exif == "ignore"


# --- the sink of drawn pictures ---


@pytest.fixture
def sink(tmp_path):
    return AnnotatedSink(str(tmp_path / "out" / "found.jsonl"))


def opened(sink, names, **options):
    class Listed:
        finite = True
        reader = None

        def entries(self):
            return (Entry(name, os.fsencode(name)) for name in names)

    with Manifest.snapshot(Listed()) as manifest:
        return Outputs.open(sink, manifest, {"a": 1}, difference=difference, **options)


def record(sink, index, name, result=FOUND, image=None):
    encode = pickle.loads(pickle.dumps(sink.encoder))
    origin = Origin({}, partial(grey) if image is None else lambda: image)
    return Record(index, name, encode(result, origin))


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_lines_and_pictures_are_written_together(sink, tmp_path):
    names = ["a/street.jpg", "b/street.png", "c/bad.jpg", "d/日本.webp"]
    with opened(sink, names) as outputs:
        outputs.begin()
        outputs.write([record(sink, 0, names[0]), record(sink, 1, names[1])])
        assert files(tmp_path / "out/found")[-2:] == ["000000-street.jpg", "000001-street.jpg"]
        outputs.write([Failure(2, names[2], "pre", "empty", ""), record(sink, 3, names[3])])
        outputs.close("complete")

    lines = [json.loads(line) for line in Path(sink.path).read_text().splitlines()]
    assert [line["index"] for line in lines] == [0, 1, 3]
    assert lines[0]["result"] == FOUND
    pictures = tmp_path / "out" / "found"
    assert files(pictures) == ["000000-street.jpg", "000001-street.jpg", "000003-日本.jpg"]
    drawn = cv2.imread(str(pictures / "000000-street.jpg"))
    assert drawn.shape == (120, 160, 3)
    assert (drawn[50:60, 18:24] != 128).any()


def test_a_png_is_as_it_was_drawn(tmp_path):
    sink = AnnotatedSink(str(tmp_path / "x.jsonl"), str(tmp_path / "p"), "png")
    with opened(sink, ["a.jpg"]) as outputs:
        outputs.begin()
        outputs.write([record(sink, 0, "a.jpg")])
        outputs.close("complete")

    expected = grey()
    annotate(expected, FOUND, Style())
    assert (cv2.imread(str(tmp_path / "p/000000-a.png")) == expected).all()


def test_a_run_is_resumed_and_leaves_what_one_run_leaves(sink, tmp_path):
    names = [f"{number}.jpg" for number in range(4)]
    with opened(sink, names) as outputs:
        outputs.begin()
        outputs.write([record(sink, 0, names[0])])
        record(sink, 1, names[1])  # drawn, and never written
        outputs.close("interrupted")
    assert files(tmp_path / "out/found") == ["000000-0.jpg"]

    with opened(sink, names, resume=True) as outputs:
        assert outputs.first == 1
        outputs.begin()
        outputs.write([record(sink, index, names[index]) for index in (1, 2, 3)])
        outputs.close("complete")

    assert files(tmp_path / "out/found") == [f"{n:06}-{n}.jpg" for n in range(4)]
    assert len(Path(sink.path).read_text().splitlines()) == 4


def test_pictures_behind_a_torn_line_go_with_it(sink, tmp_path):
    names = [f"{number}.jpg" for number in range(3)]
    with opened(sink, names) as outputs:
        outputs.begin()
        outputs.write([record(sink, index, names[index]) for index in range(3)])
        outputs.close("interrupted")
    lines = Path(sink.path).read_bytes().splitlines(keepends=True)
    Path(sink.path).write_bytes(lines[0] + lines[2])  # as if the second were lost

    outputs = opened(sink, names, resume=True)

    assert outputs.first == 1
    assert "000002-2.jpg" not in files(tmp_path / "out/found")
    outputs.close("interrupted")


def test_a_run_goes_on_where_the_first_picture_is_missing(sink, tmp_path):
    names = [f"{number}.jpg" for number in range(3)]
    with opened(sink, names) as outputs:
        outputs.begin()
        outputs.write([record(sink, index, names[index]) for index in range(3)])
        outputs.close("interrupted")
    (tmp_path / "out" / "found" / "000001-1.jpg").unlink()

    with opened(sink, names, resume=True) as outputs:
        assert outputs.first == 1
        outputs.begin()
        outputs.write([record(sink, index, names[index]) for index in (1, 2)])
        outputs.close("complete")

    assert files(tmp_path / "out/found") == [f"{n:06}-{n}.jpg" for n in range(3)]
    assert len(Path(sink.path).read_text().splitlines()) == 3


def test_a_new_run_drops_the_pictures_of_the_old_one_and_nothing_else(sink, tmp_path):
    with opened(sink, ["a.jpg", "b.jpg"]) as outputs:
        outputs.begin()
        outputs.write([record(sink, 0, "a.jpg"), record(sink, 1, "b.jpg")])
        outputs.close("complete")
    own = tmp_path / "out" / "found" / "mine.jpg"
    own.write_bytes(b"mine")

    outputs = opened(sink, ["c.jpg"])
    assert "000001-b.jpg" in files(own.parent)  # until the new run begins
    outputs.begin()
    outputs.write([record(sink, 0, "c.jpg")])
    outputs.close("complete")

    assert files(own.parent) == ["000000-c.jpg", "mine.jpg"]


def test_a_run_that_never_begins_leaves_no_folder(sink, tmp_path):
    outputs = opened(sink, ["a.jpg"])
    outputs.close("interrupted")

    assert not (tmp_path / "out" / "found").exists()


def test_a_name_too_long_for_a_file_is_cut(sink, tmp_path):
    name = "猫" * 83 + ".jpg"  # 249 bytes and the ending
    with opened(sink, [name]) as outputs:
        outputs.begin()
        outputs.write([record(sink, 0, name)])
        outputs.close("complete")

    (picture,) = files(tmp_path / "out/found")
    assert picture.startswith("000000-猫猫")
    assert picture.endswith(".jpg")


def test_a_folder_that_goes_away_stops_the_run(sink, tmp_path):
    with opened(sink, ["a.jpg"]) as outputs:
        outputs.begin()
        made = record(sink, 0, "a.jpg")
        (tmp_path / "out" / "found").rename(tmp_path / "elsewhere")
        with pytest.raises(GepipeError, match="cannot write"):
            outputs.write([made])
        with pytest.raises(ConfigError, match=r"cannot write a picture .* again with --resume"):
            record(sink, 0, "a.jpg")

    assert Path(sink.path).read_text() == ""


def test_options_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="quality is 0"):
        AnnotatedSink("a.jsonl", quality=0)
    with pytest.raises(ValueError, match="scale is 0"):
        AnnotatedSink("a.jsonl", scale=0)
    assert isinstance(AnnotatedSink("a.jsonl"), Sink)
    assert AnnotatedSink("lines").drawn.path.name == "lines.pictures"
    assert AnnotatedSink("out/lines").drawn.path == Path("out/lines.pictures")


def test_a_picture_of_a_frame_is_called_by_its_video_and_number(tmp_path):
    sink = AnnotatedSink(str(tmp_path / "out.jsonl"))

    with opened(sink, ["a/street.avi#frame=57"]) as outputs:
        payload = sink.encoder({"detections": []}, Origin({}, grey))
        outputs.write([Record(0, "a/street.avi#frame=57", payload)])
        outputs.close("complete")

    assert [path.name for path in sink.drawn.path.iterdir()] == ["000000-street-57.jpg"]


# --- COCO ---


def coco(sink, results, *, status="complete", **options):
    names = [f"{number}.jpg" for number in range(len(results))]
    with opened(sink, names, **options) as outputs:
        outputs.begin()
        for index in range(outputs.first, len(results)):
            meta = {"height": 120, "width": 160}
            payload = sink.encoder(results[index], Origin(meta, grey))
            outputs.write([Record(index, names[index], payload)])
            if status == "interrupted":
                break
        outputs.close(status)


def test_coco_holds_images_annotations_and_categories(tmp_path):
    sink = CocoSink(str(tmp_path / "found.json"))
    assert isinstance(sink, Sink)

    coco(sink, [FOUND, {"detections": []}], status="interrupted")
    assert not (tmp_path / "found.json").exists()
    coco(sink, [FOUND, {"detections": []}], resume=True)

    made = json.loads((tmp_path / "found.json").read_text())
    assert made["images"] == [
        {"id": 1, "file_name": "0.jpg", "width": 160, "height": 120},
        {"id": 2, "file_name": "1.jpg", "width": 160, "height": 120},
    ]
    assert made["annotations"][0] == {
        "id": 1,
        "image_id": 1,
        "category_id": 1,
        "bbox": [20.4, 30.0, 59.6, 60.0],
        "area": 3576.0,
        "iscrowd": 0,
        "score": 0.75,
    }
    assert [each["id"] for each in made["annotations"]] == [1, 2]
    assert made["categories"] == [{"id": 1, "name": "person"}, {"id": 2, "name": "dog"}]
    assert not (tmp_path / "found.json.journal").exists()


def test_coco_tells_frame_time_and_track(tmp_path):
    sink = CocoSink(str(tmp_path / "found.json"))
    result = {"frame": 7, "time": 0.28, "detections": [{**ONE, "track": 3}, {**ONE, "track": None}]}

    with opened(sink, ["street.avi#frame=7"]) as outputs:
        payload = sink.encoder(result, Origin({"height": 120, "width": 160}, grey))
        outputs.write([Record(0, "street.avi#frame=7", payload)])
        outputs.close("complete")

    made = json.loads((tmp_path / "found.json").read_text())
    assert made["images"] == [
        {
            "id": 1,
            "file_name": "street.avi#frame=7",
            "width": 160,
            "height": 120,
            "frame": 7,
            "time": 0.28,
        }
    ]
    assert [each.get("track_id") for each in made["annotations"]] == [3, None]
    assert "track_id" not in made["annotations"][1]


def test_coco_without_a_find_is_valid(tmp_path):
    coco(CocoSink(str(tmp_path / "found.json")), [{"detections": []}])

    made = json.loads((tmp_path / "found.json").read_text())
    assert (len(made["images"]), made["annotations"], made["categories"]) == (1, [], [])


@pytest.mark.parametrize("result", [{"top_k": []}, [1], {"detections": 5}])
def test_coco_refuses_other_results(result):
    with pytest.raises(ItemError, match="takes results with a list of detections") as caught:
        CocoSink("a.json").encoder(result, Origin({}, grey))

    assert caught.value.kind == "no_detections"
