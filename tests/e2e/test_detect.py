"""The ready detector: right answers on real photos, on every engine, and drawn pictures."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

import gepipe
from gepipe import ConfigError
from tests.support import wait_until

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "samples/models/nanodet_g.onnx"
PHOTOS = ROOT / "samples/media/photos"
GEPIPE = [sys.executable, "-c", "from gepipe.cli.app import main; main()"]
pytestmark = pytest.mark.skipif(
    not MODEL.exists(), reason="the detector is not fetched: gepipe samples fetch detect"
)

#: Class, score and box of the one object in each photo; the others have none.
ANSWERS = {
    "astronaut.png": ("person", 0.734, [14, 14, 364, 508]),
    "camera.png": ("person", 0.877, [4, 68, 319, 512]),
    "chelsea.png": ("cat", 0.590, [2, 0, 439, 298]),
    "coffee.png": ("dining table", 0.486, [8, 1, 597, 400]),
    "motorcycle_left.png": ("motorcycle", 0.802, [104, 67, 687, 455]),
}


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch):
    monkeypatch.chdir(ROOT)


def job(output: Path, *overrides: str, **options):
    pipeline = gepipe.Pipeline.from_yaml(ROOT / "pipelines/detect.yaml", overrides)
    return pipeline.job(output=str(output), **options)


def results(lines: Path) -> dict[str, list[dict]]:
    records = map(json.loads, lines.read_text(encoding="utf-8").splitlines())
    return {Path(each["source"]).name: each["result"]["detections"] for each in records}


def iou(a, b):
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    shared = np.prod(np.clip(high - low, 0, None))
    return shared / (
        np.prod(np.subtract(a[2:], a[:2])) + np.prod(np.subtract(b[2:], b[:2])) - shared
    )


def assert_right(found):
    assert {name for name, objects in found.items() if objects} == set(ANSWERS)
    for name, (label, score, box) in ANSWERS.items():
        (one,) = found[name]
        assert one["label"] == label
        assert one["score"] == pytest.approx(score, abs=0.03)
        assert iou(np.array(one["box"]), np.array(box)) > 0.95


def test_the_objects_of_the_photos_are_found_and_drawn(tmp_path):
    report = job(tmp_path / "found.jsonl").run()

    assert (report.total, report.failed) == (8, 0)
    assert f"drawn pictures go into the folder {str(tmp_path / 'found')!r}" in report.notes
    assert_right(results(tmp_path / "found.jsonl"))
    pictures = sorted((tmp_path / "found").iterdir())
    names = [path.stem for path in sorted(PHOTOS.glob("*.*g"))]
    assert [path.name for path in pictures] == [f"{i:06}-{n}.jpg" for i, n in enumerate(names)]
    drawn = cv2.imread(str(tmp_path / "found" / "000000-astronaut.jpg")).astype(int)
    original = cv2.imread(str(PHOTOS / "astronaut.png")).astype(int)
    changed = np.abs(drawn - original).max(axis=2) > 60
    assert changed[14:508, 12:18].any(axis=1).mean() > 0.95  # the left side of the box
    assert changed[60:480, 60:320].mean() < 0.01  # and nothing within


def test_an_emulated_npu_finds_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("GEPIPE_CACHE", str(tmp_path / "cache"))
    lines = "sink={jsonl: found.jsonl}"

    job(tmp_path / "onnx.jsonl", lines).run()
    report = job(tmp_path / "ge.jsonl", lines, "inference.backend={ge: {device: emulator}}").run()

    assert any("EMULATED NPU" in note for note in report.notes)
    assert_right(results(tmp_path / "ge.jsonl"))
    assert (tmp_path / "ge.jsonl").read_bytes() == (tmp_path / "onnx.jsonl").read_bytes()


def test_boxes_are_in_pixels_of_the_original_however_large_and_turned_it_is(tmp_path):
    """The same photo as a turned JPEG three times as large, which is decoded reduced."""
    from PIL import Image

    large = Image.open(PHOTOS / "astronaut.png").resize((1536, 1536), Image.Resampling.BICUBIC)
    exif = Image.Exif()
    exif[0x0112] = 6
    folder = tmp_path / "in"
    folder.mkdir()
    large.transpose(Image.Transpose.ROTATE_90).save(folder / "a.jpg", quality=95, exif=exif)

    job(tmp_path / "found.jsonl", inputs=[str(folder)]).run()

    (best, *_) = results(tmp_path / "found.jsonl")["a.jpg"]
    assert best["label"] == "person"
    expected = np.array(ANSWERS["astronaut.png"][2]) * 3
    assert iou(np.array(best["box"]), expected) > 0.93
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    drawn = cv2.imread(str(tmp_path / "found" / "000000-a.jpg"), flags).astype(int)
    assert drawn.shape == (1536, 1536, 3)
    part = (slice(900, 1000), slice(1200, 1300))
    assert np.abs(drawn[part] - np.asarray(large)[part][:, :, ::-1]).mean() < 12


def test_coco_json_says_the_same(tmp_path):
    job(tmp_path / "found.json", "sink={coco: found.json}").run()

    made = json.loads((tmp_path / "found.json").read_text())
    images = {image["id"]: image for image in made["images"]}
    names = {category["id"]: category["name"] for category in made["categories"]}
    found = {Path(image["file_name"]).name: [] for image in images.values()}
    for each in made["annotations"]:
        x, y, width, height = each["bbox"]
        name = Path(images[each["image_id"]]["file_name"]).name
        entry = {
            "label": names[each["category_id"]],
            "score": each["score"],
            "box": [x, y, x + width, y + height],
        }
        found[name].append(entry)
    assert_right(found)
    assert images[1] == {**images[1], "width": 512, "height": 512}


def test_a_bad_photo_has_no_picture_and_no_line(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.png").write_bytes((PHOTOS / "chelsea.png").read_bytes())
    (folder / "b.jpg").write_bytes(b"no picture")
    (folder / "c.png").write_bytes((PHOTOS / "rocket.jpg").read_bytes())

    report = job(tmp_path / "found.jsonl", inputs=[str(folder)]).run()

    assert report.failed == 1
    assert [path.name for path in sorted((tmp_path / "found").iterdir())] == [
        "000000-a.jpg",
        "000002-c.jpg",
    ]


def test_an_output_folder_gets_lines_and_pictures(tmp_path):
    (tmp_path / "out").mkdir()

    job(tmp_path / "out", limit=1).run()

    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "detect.jsonl",
        "detect.job.json",
        "detect.failures.jsonl",
        "detect",
    }


def test_inputs_in_the_folder_of_pictures_are_refused(tmp_path):
    (tmp_path / "found").mkdir()
    (tmp_path / "found" / "a.png").write_bytes((PHOTOS / "chelsea.png").read_bytes())

    with pytest.raises(ConfigError, match="folder of what is drawn holds an input"):
        job(tmp_path / "found.jsonl", inputs=[str(tmp_path / "found")]).run()

    assert (tmp_path / "found" / "a.png").exists()


def test_a_triton_server_gives_the_same_lines_in_both_layouts(triton_kit, tmp_path):
    from gepipe.serving.export import export
    from gepipe.spec.load import load
    from gepipe.triton.bell import Bell
    from gepipe.triton.ports import free_ports
    from gepipe.triton.runs import new_run
    from gepipe.triton.server import Server

    lines = "sink={jsonl: found.jsonl}"
    job(tmp_path / "local.jsonl", lines).run()
    ports = free_ports("127.0.0.1", {"http": 0, "grpc": 0, "metrics": 0})
    url = f"http://127.0.0.1:{ports['http']}"
    models = []
    for layout in ("ensemble", "fused"):
        spec = load(ROOT / "pipelines/detect.yaml", (f"name=detect_{layout}",))
        made = export(spec, tmp_path / "models", layout=layout).models
        models += sorted(made, key=len, reverse=True)  # the ensemble comes last
    with (
        new_run() as run,
        Bell() as bell,
        Server(triton_kit, run, tmp_path / "models", ports) as server,
    ):
        server.wait_live(bell)
        for model in models:
            server.control.load(model)
        for layout in ("ensemble", "fused"):
            served = tmp_path / f"{layout}.jsonl"
            words = ["run", "pipelines/detect.yaml", "--via", url, "--output", str(served)]
            named = ["--set", f"name=detect_{layout}", "--set", lines]
            subprocess.run([*GEPIPE, *words, *named], check=True, timeout=200)
            assert served.read_bytes() == (tmp_path / "local.jsonl").read_bytes()
        server.stop(10, bell)


def test_a_killed_run_is_resumed_to_what_one_run_makes(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number:02}.png").symlink_to(PHOTOS / "chelsea.png")
    command = [*GEPIPE, "run", str(ROOT / "pipelines/detect.yaml"), "--input", str(folder)]
    output = tmp_path / "found.jsonl"
    running = subprocess.Popen(
        [*command, "--output", str(output)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_until(lambda: output.exists() and output.read_bytes().count(b"\n") >= 4)
    running.send_signal(signal.SIGKILL)
    running.wait()

    done = subprocess.run([*command, "--output", str(output), "--resume"], check=True, timeout=200)

    assert done.returncode == 0
    assert len(results(output)) == 40
    pictures = sorted((tmp_path / "found").iterdir())
    assert [path.name for path in pictures] == [f"{n:06}-{n:02}.jpg" for n in range(40)]
    assert len({path.read_bytes() for path in pictures}) == 1
