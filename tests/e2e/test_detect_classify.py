"""Each object of a photo classified by a second model: right answers on real photos."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

import gepipe
from gepipe import bundle

ROOT = Path(__file__).resolve().parents[2]
PHOTOS = ROOT / "samples/media/photos"
pytestmark = pytest.mark.skipif(
    not (ROOT / "samples/models/nanodet_g.onnx").exists(),
    reason="the detector is not fetched: gepipe samples fetch detect-classify",
)

#: What the detector finds in each photo, and what the classifier calls it, with its probability;
#: it has no name for a person, but one for what a photographer stands behind.
ANSWERS = {
    "astronaut.png": ("person", None, 0.0),
    "camera.png": ("person", "tripod", 0.757),
    "chelsea.png": ("cat", "Egyptian cat", 0.700),
    "coffee.png": ("dining table", "espresso", 0.637),
    "motorcycle_left.png": ("motorcycle", "moped", 0.814),
}


def results(
    folder: Path, *overrides: str, file: Path = ROOT / "pipelines/detect-classify.yaml"
) -> dict[str, list[dict]]:
    pipeline = gepipe.Pipeline.from_yaml(file, overrides)
    report = pipeline.job(output=str(folder / "found.jsonl")).run()
    assert (report.total, report.failed) == (8, 0)
    records = map(json.loads, (folder / "found.jsonl").read_text(encoding="utf-8").splitlines())
    return {Path(each["source"]).name: each["result"]["detections"] for each in records}


def test_every_object_is_classified(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)

    found = results(tmp_path)

    assert {name for name, objects in found.items() if objects} == set(ANSWERS)
    for name, (label, kind, probability) in ANSWERS.items():
        (one,) = found[name]
        assert one["label"] == label
        assert set(one) == {"class", "label", "score", "box", "top_k"}
        assert len(one["top_k"]) == 3
        if kind is not None:
            assert one["top_k"][0]["label"] == kind
            assert one["top_k"][0]["score"] == pytest.approx(probability, abs=0.05)


def test_each_object_is_what_its_pixels_are_to_the_classifier(tmp_path, monkeypatch):
    """The same by OpenCV, NumPy and ONNX Runtime, from the boxes of the record."""
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.chdir(ROOT)
    model = str(ROOT / "samples/models/efficientnet_lite0.onnx")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    found = results(tmp_path, "objects.batch_size=3")

    for name, objects in found.items():
        photo = cv2.imread(str(PHOTOS / name))
        for each in objects:
            (probs,) = session.run(["probs"], {"input": tensor(photo, each["box"])[None]})[0]
            for entry in each["top_k"]:
                assert entry["score"] == pytest.approx(float(probs[entry["class"]]), abs=0.02)


VIDEO = ROOT / "samples/media/videos/vtest.avi"


@pytest.mark.skipif(not VIDEO.exists(), reason="needs gepipe samples fetch detect-video")
def test_objects_of_a_video_are_those_of_its_frames_as_pictures(tmp_path, monkeypatch):
    """Parts are cut out of the frames in memory: of the right frame, in the right colours."""
    pytest.importorskip("av")
    monkeypatch.chdir(ROOT)
    video, frames = cv2.VideoCapture(str(VIDEO)), tmp_path / "frames"
    frames.mkdir()
    for number in range(9):
        picture = video.read()[1]
        if number % 4 == 0:
            cv2.imwrite(str(frames / f"{number:03}.png"), picture)
    video.release()
    chain = ROOT / "pipelines/detect-classify.yaml"
    source = f"source={{videos: {{paths: {VIDEO}, every: 4}}}}"

    of_frames = gepipe.Pipeline.from_yaml(chain, [source])
    report = of_frames.job(output=str(tmp_path / "video.jsonl"), limit=3).run()
    of_pictures = gepipe.Pipeline.from_yaml(chain)
    of_pictures.job(inputs=[str(frames)], output=str(tmp_path / "frames.jsonl")).run()

    assert (report.total, report.failed) == (3, 0)
    read = [(tmp_path / f"{name}.jsonl").read_text().splitlines() for name in ("video", "frames")]
    for frame, picture in zip(*read, strict=True):
        found, expected = (json.loads(line)["result"]["detections"] for line in (frame, picture))
        assert len(expected) > 2
        assert [(each["label"], each["box"]) for each in found] == [
            (each["label"], each["box"]) for each in expected
        ]
        for one, other in zip(found, expected, strict=True):
            assert one["top_k"][0]["label"] == other["top_k"][0]["label"]
            assert one["top_k"][0]["score"] == pytest.approx(other["top_k"][0]["score"], abs=1e-3)


REFUSE = """
import os
from gepipe import ItemError

def refuse(picture, meta):
    if meta["part"]["label"] == "cat":
        {body}
    return picture
"""


@pytest.mark.parametrize(
    ("body", "kind"),
    [("raise ItemError('allergy', 'no cats')", "allergy"), ("os._exit(9)", "crash")],
)
def test_an_object_that_cannot_be_prepared_marks_itself_only(tmp_path, monkeypatch, body, kind):
    monkeypatch.chdir(ROOT)
    (tmp_path / "refuse.py").write_text(REFUSE.format(body=body))
    content = yaml.safe_load(bundle.pipeline_text("detect-classify"))
    (objects,) = (stage for stage in content["pipeline"]["stages"] if stage["name"] == "objects")
    objects["ops"].insert(2, {"python": f"{tmp_path}/refuse.py:refuse"})
    (tmp_path / "chain.yaml").write_text(yaml.safe_dump(content))

    found = results(tmp_path, file=tmp_path / "chain.yaml")

    (cat,) = found.pop("chelsea.png")
    assert set(cat) == {"class", "label", "score", "box", "failure"}
    assert (cat["failure"]["stage"], cat["failure"]["kind"]) == ("objects", kind)
    assert all(set(each) >= {"top_k"} for objects in found.values() for each in objects)
    assert sum(len(objects) for objects in found.values()) == 4


def tensor(photo, box):
    """Cut out a box with a twentieth around it, fit it into 224 pixels on grey, normalise."""
    x1, y1, x2, y2 = box
    x, y = (x2 - x1) * 0.05, (y2 - y1) * 0.05
    left, top, right, bottom = (round(edge) for edge in (x1 - x, y1 - y, x2 + x, y2 + y))
    around = cv2.copyMakeBorder(photo, 99, 99, 99, 99, cv2.BORDER_REPLICATE)
    part = around[top + 99 : bottom + 99, left + 99 : right + 99, ::-1]
    scale = 224 / max(part.shape[:2])
    height, width = (round(side * scale) for side in part.shape[:2])
    canvas = np.full((224, 224, 3), 127, np.float32)
    y, x = (224 - height) // 2, (224 - width) // 2
    canvas[y : y + height, x : x + width] = cv2.resize(part, (width, height))
    return ((canvas - 127) / 128).transpose(2, 0, 1)
