"""The ready pipeline over real videos: right answers, and what a job over them says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import gepipe

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "samples/models/nanodet_g.onnx"
STREET = ROOT / "samples/media/videos/vtest.avi"
BIKES = ROOT / "samples/media/videos/bikes.mp4"
LINES = "sink={jsonl: unused.jsonl}"
GEPIPE = [sys.executable, "-c", "from gepipe.cli.app import main; main()"]
pytestmark = pytest.mark.skipif(
    not (MODEL.exists() and BIKES.exists()),
    reason="videos are not fetched: gepipe samples fetch detect-video",
)
with_the_street = pytest.mark.skipif(
    not STREET.exists(), reason="the video of Debian could not be fetched"
)

#: Persons in each hundredth frame of the street.
PERSONS = {0: 3, 100: 6, 200: 8, 300: 6, 400: 3, 500: 5}


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch):
    monkeypatch.chdir(ROOT)


def job(output: Path, *overrides: str, pipeline: str = "detect-video", **options):
    opened = gepipe.Pipeline.from_yaml(ROOT / f"pipelines/{pipeline}.yaml", [LINES, *overrides])
    return opened.job(output=str(output), **options)


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def persons(result: dict) -> int:
    return sum(each["label"] == "person" for each in result["detections"])


@with_the_street
@pytest.mark.parametrize("pipeline", ["detect-video", "detect"])
def test_people_in_the_street_are_found(tmp_path, pipeline):
    every = ["source={videos: {paths: x, every: 100}}"]
    report = job(
        tmp_path / "r.jsonl", *every, pipeline=pipeline, inputs=[str(STREET)], limit=6
    ).run()

    results = [each["result"] for each in records(report.output)]
    assert {result["frame"]: persons(result) for result in results} == PERSONS
    assert [result["time"] for result in results] == [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    for result in results:
        for each in result["detections"]:
            left, top, right, bottom = each["box"]
            assert 0 <= left < right <= 768
            assert 0 <= top < bottom <= 576


@with_the_street
def test_every_frame_of_both_videos_has_a_result_keyed_by_source_and_frame(tmp_path):
    report = job(tmp_path / "r.jsonl", "source.videos.every=5").run()

    results = records(report.output)
    assert report.failed == 0
    assert [each["source"].rpartition("/")[2] for each in results] == [
        *(f"bikes.mp4#frame={frame}" for frame in range(0, 250, 5)),
        *(f"vtest.avi#frame={frame}" for frame in range(0, 795, 5)),
    ]
    times = [each["result"]["time"] for each in results]
    assert times[:50] == pytest.approx([frame / 25 for frame in range(0, 250, 5)])
    assert times[50:] == pytest.approx([frame / 10 for frame in range(0, 795, 5)])


@with_the_street
def test_a_damaged_video_ends_with_3_and_its_other_frames_are_there(tmp_path):
    data = bytearray(STREET.read_bytes())
    place = len(data) // 3
    data[place : place + 30_000] = bytes(range(256)) * 118  # bytes of no meaning
    broken = tmp_path / "broken.avi"
    broken.write_bytes(data[: len(STREET.read_bytes())])

    done = subprocess.run(
        [*GEPIPE, "run", "pipelines/detect-video.yaml", "--input", str(broken), "--output",
         str(tmp_path / "r.jsonl"), "--set", "source.videos.every=20", "--set", LINES, "--json"],
        check=False, capture_output=True, text=True, timeout=200,
    )  # fmt: skip

    summary = json.loads(done.stdout)
    assert done.returncode == 3
    assert summary["status"] == "complete"
    assert (summary["videos"], summary["failures"]) == (1, 1)
    (failure,) = records(tmp_path / "r.failures.jsonl")
    assert (failure["source"], failure["kind"]) == (str(broken), "damaged")
    found = {
        each["result"]["frame"]: persons(each["result"]) for each in records(tmp_path / "r.jsonl")
    }
    assert {frame: count for frame, count in found.items() if frame in (0, 100)} == {0: 3, 100: 6}
    assert max(found) > 700, "it goes on behind the damage"
    assert min(found[frame] for frame in found if frame > 400) > 0


def test_a_picture_takes_the_place_of_the_videos(tmp_path):
    photos = sorted(map(str, (ROOT / "samples/media/photos").glob("*.jpg")))[:2]

    report = job(tmp_path / "r.jsonl", inputs=photos).run()

    assert [each["source"] for each in records(report.output)] == photos
    assert all("frame" not in each["result"] for each in records(report.output))
