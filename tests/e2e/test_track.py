"""Who is who in a real video: people who walk keep their tracks, in the lines and in the film."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import gepipe

pytest.importorskip("supervision")
av = pytest.importorskip("av")

ROOT = Path(__file__).resolve().parents[2]
STREET = ROOT / "samples/media/videos/vtest.avi"
MODEL = ROOT / "samples/models/nanodet_g.onnx"
pytestmark = pytest.mark.skipif(
    not (MODEL.exists() and STREET.exists()),
    reason="the video is not fetched: gepipe samples fetch detect-video",
)

#: Where four people who were looked at are, by frame: the middle of each, in pixels.
PEOPLE = (
    {0: (268, 265), 20: (379, 234), 45: (392, 218)},
    {20: (706, 325), 45: (559, 273), 60: (484, 247), 85: (466, 205), 100: (505, 184)},
    {20: (744, 324), 45: (594, 270), 60: (515, 244), 85: (495, 207), 100: (530, 186)},
    {45: (728, 329), 60: (633, 287), 85: (580, 226), 100: (604, 194)},
)


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """Return the records of the first frames, and their film."""
    folder = tmp_path_factory.mktemp("tracked")
    labels = ROOT / "samples/models/coco_labels.json"
    ops = f"[{{yolo: {{confidence: 0.1, labels: {labels}}}}}, {{track: {{score: 0.4}}}}]"
    pipeline = gepipe.Pipeline.from_yaml(
        ROOT / "pipelines/detect-video.yaml", [f"postprocess.ops={ops}"]
    )
    job = pipeline.job(inputs=[STREET], output=str(folder / "out.jsonl"), limit=101)
    report = job.run()
    assert (report.total, report.failed) == (101, 0)
    lines = (folder / "out.jsonl").read_text().splitlines()
    return [json.loads(line)["result"] for line in lines], folder / "out" / "000-vtest.mp4"


def test_people_who_walk_keep_their_tracks(tracked):
    records, _ = tracked
    numbers = []
    for person in PEOPLE:
        seen = set()
        for frame, middle in person.items():
            near = min(
                (each for each in records[frame]["detections"] if each["label"] == "person"),
                key=lambda each: np.hypot(*(np.reshape(each["box"], (2, 2)).mean(0) - middle)),
            )
            assert np.hypot(*(np.reshape(near["box"], (2, 2)).mean(0) - middle)) < 12
            seen.add(near["track"])
        assert len(seen) == 1
        numbers.append(seen.pop())
    assert None not in numbers
    assert len(set(numbers)) == len(PEOPLE)


def test_what_the_detector_is_known_to_find_is_still_listed(tracked):
    records, _ = tracked

    for frame, count in {0: 3, 100: 6}.items():
        found = records[frame]["detections"]
        assert sum(each["label"] == "person" and each["score"] > 0.4 for each in found) == count


def test_counts_grow_and_agree_with_the_tracks(tracked):
    records, _ = tracked

    people = [record["counts"]["person"] for record in records]

    assert people == sorted(people)
    assert people[0] == 3
    assert 7 <= people[-1] <= 12  # seven walk through, some come out again from behind the post


def test_the_film_shows_each_frame_when_it_was_seen(tracked):
    _, film = tracked
    with av.open(str(film)) as container:
        stream = container.streams.video[0]
        times = [round(float(frame.time), 3) for frame in container.decode(stream)]

    assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
    assert (stream.width, stream.height) == (768, 576)
    assert times == [round(number / 10, 3) for number in range(101)]
