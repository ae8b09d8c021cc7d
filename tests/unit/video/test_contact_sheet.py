"""The sink contact_sheet: which small pictures there are, and what becomes of them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import cv2
import numpy as np
import pytest

from gepipe.errors import ConfigError, GepipeError, ItemError
from gepipe.io.original import Origin
from gepipe.io.sink import Record
from gepipe.video.contact import ContactSheetSink
from gepipe.video.contactfile import stride


class Feed:
    live = False


class LiveFeed:
    live = True


FOUND = {"detections": [{"class": 0, "label": "person", "score": 0.75, "box": [20, 30, 80, 90]}]}


def picture(grey: int, height: int = 120, width: int = 160):
    return np.full((height, width, 3), grey, np.uint8)


def meta_of(position: int, video: int = 0):
    return {"video": video, "position": position, "time": position / 10, "frame": position}


def write_frames(file, sink, count, *, first=0, path="street.avi", video=0, failed=(), skip=0):
    encoder = sink.encoder
    for number in range(count):
        if number in failed:
            continue
        position = number + skip
        payload = encoder({"detections": []}, Origin(meta_of(position, video), lambda: picture(99)))
        file.write([Record(first + number, f"{path}#frame={position}", payload)])


def lines_of(sink):
    return [json.loads(line) for line in Path(sink.path).read_text().splitlines()]


@pytest.mark.parametrize(
    ("position", "expected"), [(0, 1), (3, 1), (4, 2), (7, 2), (8, 4), (15, 4), (16, 8)]
)
def test_frames_of_a_sheet_lie_at_equal_distances(position, expected):
    assert stride(position, 4) == expected


@pytest.mark.parametrize("count", [1, 4, 7, 8, 9, 33])
def test_a_sheet_shows_at_most_its_count_whatever_the_length(tmp_path, count):
    sink = ContactSheetSink(str(tmp_path / "out.jsonl"), count=4, columns=2, width=64)
    file = sink.open()
    file.attach(Feed())

    write_frames(file, sink, count)
    (sheet,) = file._open.values()
    step = stride(count - 1, 4)

    assert [position for position, *_ in sheet.pictures] == list(range(0, count, step))
    parts = list(sink.drawn.parts.iterdir())
    assert len(parts) == len(sheet.pictures)  # no more on the disk either
    file.close(complete=True)
    assert [path.name for path in sink.drawn.path.iterdir()] == ["000-street.jpg"]
    assert {line["sheet"] for line in lines_of(sink)} == {"000-street.jpg"}
    assert len(lines_of(sink)) == count


def test_a_sheet_shows_what_was_drawn_in_its_place(tmp_path):
    sink = ContactSheetSink(str(tmp_path / "out.jsonl"), count=5, columns=2, width=160)
    file = sink.open()
    file.attach(Feed())
    for number, grey in enumerate((40, 90, 140)):
        origin = Origin({}, lambda grey=grey: picture(grey))
        payload = sink.encoder(FOUND if number == 1 else {"detections": []}, origin)
        file.write([Record(number, f"photos/{number}.jpg", payload)])
    file.close(complete=True)

    sheet = cv2.imread(str(sink.drawn.path / "000.jpg"))

    assert sheet.shape[1] == 2 * (160 + 6) + 6
    assert abs(sheet[60, 80].astype(int) - 40).max() < 6
    assert abs(sheet[100, 166 + 140].astype(int) - 90).max() < 6
    assert abs(sheet[220, 80].astype(int) - 140).max() < 6
    drawn = sheet[6:126, 172:332].astype(int)
    assert (drawn[..., 2] - drawn[..., 0] > 100).any()  # the box's red
    assert (sheet[128:140, 6:100] > 150).any()  # letters of the caption


def test_each_video_has_its_sheet_and_pictures_share_one(tmp_path):
    sink = ContactSheetSink(str(tmp_path / "out.jsonl"), count=4, width=64)
    file = sink.open()
    file.attach(Feed())
    write_frames(file, sink, 3, path="a/street.avi", video=0, failed={0})
    write_frames(file, sink, 2, first=3, path="b/street.avi", video=1)
    file.close(complete=True)

    assert sorted(path.name for path in sink.drawn.path.iterdir()) == [
        "000-street.jpg",
        "001-street.jpg",
    ]
    assert [line["sheet"] for line in lines_of(sink)] == ["000-street.jpg"] * 2 + [
        "001-street.jpg"
    ] * 2

    photos = ContactSheetSink(str(tmp_path / "photos.jsonl"), count=2, width=64)
    file = photos.open()
    file.attach(Feed())
    for number in (0, 1, 3, 4):  # 2 has failed
        payload = photos.encoder({"detections": []}, Origin({}, lambda: picture(99)))
        file.write([Record(number, f"{number}.jpg", payload)])
    file.close(complete=True)
    assert [line["sheet"] for line in lines_of(photos)] == [
        "000.jpg",
        "000.jpg",
        "001.jpg",
        "002.jpg",
    ]
    assert len(list(photos.drawn.path.iterdir())) == 3


def test_an_interrupted_run_keeps_whole_sheets_only(tmp_path):
    sink = ContactSheetSink(str(tmp_path / "out.jsonl"), count=4, width=64)
    file = sink.open()
    file.attach(Feed())
    write_frames(file, sink, 3, path="a.avi", video=0)
    write_frames(file, sink, 2, first=3, path="b.avi", video=1)
    file.close(complete=False)

    assert [path.name for path in sink.drawn.path.iterdir()] == ["000-a.jpg"]
    assert len(lines_of(sink)) == 5
    again = sink.open()
    marks = list(again.scan())
    assert [mark.index for mark in marks] == [0, 1, 2]
    again.cut(marks[1].end)  # a line of a.avi is gone, and so is what it belonged to
    assert [mark.index for mark in again.scan()] == [0, 1]
    again.clear()
    again.close(complete=False)
    assert not sink.drawn.path.exists()


def test_sheets_of_live_sources_end_with_the_run(tmp_path):
    sink = ContactSheetSink(str(tmp_path / "out.jsonl"), count=4, width=64)
    file = sink.open()
    file.attach(LiveFeed())
    for number in range(4):
        video = number % 2
        origin = Origin(meta_of(number // 2, video), lambda: picture(99))
        payload = sink.encoder({"detections": []}, origin)
        file.write([Record(number, f"rtsp://cam{video}/a#frame={number // 2}", payload)])
    file.close(complete=False)

    assert sorted(path.name for path in sink.drawn.path.iterdir()) == ["000-a.jpg", "001-a.jpg"]


def test_a_video_whose_shown_frames_all_failed_has_a_sheet_with_its_title(tmp_path):
    sink = ContactSheetSink(str(tmp_path / "out.jsonl"), count=2, width=64)
    file = sink.open()
    file.attach(Feed())
    write_frames(file, sink, 1, path="a.avi", skip=3)
    file.close(complete=True)

    assert cv2.imread(str(sink.drawn.path / "000-a.jpg")) is not None
    assert len(lines_of(sink)) == 1


def test_a_killed_process_ends_the_run_with_its_reason(tmp_path):
    sink = ContactSheetSink(str(tmp_path / "out.jsonl"), count=1, width=64)
    file = sink.open()
    file.attach(Feed())
    write_frames(file, sink, 1, path="a.avi", video=0)
    os.kill(file._process._child.process.pid, signal.SIGKILL)
    file._process._child.process.join()

    with pytest.raises(GepipeError, match=r"contact sheet process was lost \(killed by SIGKILL"):
        write_frames(file, sink, 2, first=1, path="b.avi", video=1)

    file.close(complete=False)
    assert len(lines_of(sink)) == 1


def test_a_folder_that_takes_nothing_is_told(tmp_path):
    sink = ContactSheetSink(str(tmp_path / "out.jsonl"), width=64)
    file = sink.open()
    file.attach(Feed())
    write_frames(file, sink, 2)
    (sink.drawn.path / "000-street.jpg").mkdir()  # permissions mean nothing to root

    with pytest.raises(GepipeError, match=r"cannot write '.*000-street.jpg': is a directory"):
        file.close(complete=True)

    assert len(lines_of(sink)) == 2


def test_a_picture_that_cannot_be_written_ends_the_run(tmp_path):
    sink = ContactSheetSink(str(tmp_path / "out.jsonl"), width=64)

    with pytest.raises(ConfigError, match=r"cannot write a picture into .*--resume"):
        sink.encoder({"detections": []}, Origin({}, lambda: picture(99)))


def test_a_result_that_cannot_be_drawn_is_the_items_failure(tmp_path):
    sink = ContactSheetSink(str(tmp_path / "out.jsonl"), width=64)

    with pytest.raises(ItemError) as caught:
        sink.encoder({"embedding": [1]}, Origin({}, lambda: picture(99)))

    assert caught.value.kind == "not_drawable"


@pytest.mark.parametrize("option", [{"count": 0}, {"columns": 0}, {"width": 8}, {"scale": 0}])
def test_options_out_of_range_are_refused(option):
    with pytest.raises(ValueError, match="expected"):
        ContactSheetSink("out.jsonl", **option)
