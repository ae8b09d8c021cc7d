"""The operator track: identities over frames, and what is counted."""

from __future__ import annotations

import pickle
import sys

import pytest

pytest.importorskip("supervision")

from gepipe.errors import ConfigError, ItemError
from gepipe.ops.tracking import Track


def person(x, score=0.8, label="person", y=10):
    return {"class": 0, "label": label, "score": score, "box": [x, y, x + 40, y + 100]}


def meta_of(position, video=0):
    return {"video": video, "position": position, "frame": 5 * position}


def follow(track, frames, *, video=0, first=0):
    """Return the record of each frame."""
    return [
        track({"detections": found}, meta_of(first + number, video))
        for number, found in enumerate(frames)
    ]


def tracks_of(record):
    return [entry["track"] for entry in record["detections"]]


def walk(count, start=10, step=4):
    return [[person(start + step * number)] for number in range(count)]


def test_those_that_walk_keep_their_tracks_in_whatever_order_they_are_found():
    right, left = walk(20), walk(20, 300, -4)
    frames = [
        [*a, *b] if number % 2 else [*b, *a]
        for number, (a, b) in enumerate(zip(right, left, strict=True))
    ]

    records = follow(Track(), frames)

    for record in records:
        by_track = {entry["track"]: entry["box"][0] for entry in record["detections"]}
        assert set(by_track) == {1, 2}
    # 1 is the one that was first in the first frame: the one that goes left.
    firsts = [next(e["box"][0] for e in r["detections"] if e["track"] == 1) for r in records]
    assert firsts == [300 - 4 * number for number in range(20)]
    assert records[-1]["counts"] == {"person": 2}


def test_one_out_of_sight_keeps_its_track_for_a_while_only():
    frames = walk(30)
    for number in range(8, 12):
        frames[number] = []
    assert [tracks_of(each) for each in follow(Track(keep=10), frames)] == (
        [[1]] * 8 + [[]] * 4 + [[1]] * 18
    )

    frames = [[person(100)]] * 5 + [[]] * 8 + [[person(100)]] * 3
    records = follow(Track(keep=3), frames)
    assert tracks_of(records[-1]) == [2]
    assert records[-1]["counts"] == {"person": 2}


def test_low_scores_are_followed_but_begin_nothing_and_are_left_out_otherwise():
    frames = [[person(100), person(300, 0.2)]] * 5 + [[person(100, 0.15), person(300, 0.2)]] * 3

    records = follow(Track(score=0.25), frames)

    assert [tracks_of(record) for record in records] == [[1]] * 8
    assert records[-1]["detections"][0]["score"] == 0.15


def test_one_not_yet_followed_has_the_track_null():
    records = follow(Track(score=0.25), [[person(100)], [person(100), person(300, 0.3)]])

    assert tracks_of(records[1]) == [1, None]
    assert records[1]["counts"] == {"person": 1}


def test_counts_are_by_the_label_that_a_track_began_with():
    frames = [[person(100, label="car"), {"class": 7, "score": 0.9, "box": [300, 10, 350, 60]}]]
    frames += [[person(100, label="truck"), *frames[0][1:]]] * 3

    records = follow(Track(), frames)

    assert records[-1]["counts"] == {"car": 1, "7": 1}
    assert tracks_of(records[-1]) == [1, 2]


def test_each_video_begins_anew():
    track = Track()
    follow(track, walk(5))
    records = follow(track, [[person(200)], [person(204)]], video=1)

    assert [tracks_of(each) for each in records] == [[1], [1]]
    assert records[-1]["counts"] == {"person": 1}
    assert "counted_from" not in records[-1]


def test_live_videos_that_come_interleaved_are_followed_each_for_itself():
    track = Track()
    records = {0: [], 1: []}
    for number in range(10):
        for video, left in ((0, 10 + 4 * number), (1, 300 - 4 * number)):
            found = [person(left), person(left + 60)] if video else [person(left)]
            records[video].append(track({"detections": found}, meta_of(number, video)))

    assert [tracks_of(each) for each in records[0]] == [[1]] * 10
    assert [tracks_of(each) for each in records[1]] == [[1, 2]] * 10
    assert records[0][-1]["counts"] == {"person": 1}
    assert records[1][-1]["counts"] == {"person": 2}


def test_videos_that_are_over_are_forgotten_in_the_end():
    track = Track()
    for video in range(200):
        follow(track, walk(2), video=video)

    assert len(track._tracks._videos) == 64


def test_a_record_keeps_its_counts_when_later_ones_count_on():
    records = follow(Track(), [[person(100)], *[[person(100), person(300)]] * 2])

    assert [record["counts"]["person"] for record in records] == [1, 1, 2]


def test_a_worker_that_took_over_gives_numbers_that_none_had_and_says_since_when():
    before = follow(Track(), walk(7))
    after = follow(Track(), walk(7, start=38), first=7)

    assert tracks_of(before[-1]) == [1]
    assert tracks_of(after[0]) == [7001]
    assert after[0]["counted_from"] == 35  # the frame's number, of which each fifth is taken
    assert after[-1]["counts"] == {"person": 1}


def test_pictures_that_are_no_frames_are_those_of_one_video():
    track = Track()
    records = [track({"detections": [person(10 + 4 * n)]}, {}) for n in range(5)]

    assert [tracks_of(record) for record in records] == [[1]] * 5


def test_the_same_frames_give_the_same_tracks():
    frames = [[person(10 + 7 * n), person(200 - 3 * n, 0.5), person(90, 0.3)] for n in range(30)]

    assert follow(Track(), frames) == follow(Track(), frames)


def test_what_else_a_record_tells_stays():
    (record,) = [Track()({"detections": [], "frame": 3}, meta_of(0))]

    assert record == {"detections": [], "frame": 3, "counts": {}}


@pytest.mark.parametrize("value", [{"top_k": []}, [1], {"detections": None}])
def test_other_results_are_refused(value):
    with pytest.raises(ItemError, match="takes records with a list of detections") as caught:
        Track()(value, meta_of(0))

    assert caught.value.kind == "no_detections"


@pytest.mark.parametrize("option", [{"score": 2}, {"match": -1}, {"keep": 0}, {"confirm": 0}])
def test_options_out_of_range_are_refused(option):
    with pytest.raises(ValueError, match="must"):
        Track(**option)


def test_a_worker_is_sent_the_options_only():
    track = Track(keep=7)
    track.setup()

    assert pickle.loads(pickle.dumps(track)) == Track(keep=7)
    assert Track.ordered


def test_without_the_library_it_tells_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "supervision.tracker.byte_tracker.core", None)

    with pytest.raises(ConfigError, match=r"track needs .*pip install 'gepipe\[track\]'"):
        Track().setup()
