"""Exports of the ready pipeline against the files that they are meant to be.

To write them anew: GEPIPE_GOLDEN=write python -m pytest tests/golden/test_triton_export.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gepipe.cli.triton_linting import describe
from gepipe.serving.export import export
from gepipe.spec.load import load
from gepipe.triton.lint import lint

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "triton"
SAMPLES = ROOT / "samples/models"
CASES = {
    "ensemble": ("classify", {}, ()),
    "fused": ("classify", {"layout": "fused"}, ()),
    "npu_ge": (
        "classify",
        {"target": "npu_ge"},
        ("inference.devices=[0, 1]", "inference.precision=fp16"),
    ),
    "latency": ("classify", {}, ("profile=latency", "preprocess.batch_size=auto")),
    "chain": ("detect-classify", {}, ()),
}
#: What is copied as it is, by the end of its path.
COPIES = {
    "classify": {
        "/model.onnx": "efficientnet_lite0.onnx",
        "/imagenet_labels.json": "imagenet_labels.json",
    },
    "detect-classify": {
        "/model1/model.onnx": "nanodet_g.onnx",
        "/model2/model.onnx": "efficientnet_lite0.onnx",
        "/imagenet_labels.json": "imagenet_labels.json",
        "/coco_labels.json": "coco_labels.json",
    },
}


def exported(folder: Path, case: str) -> dict[str, bytes]:
    pipeline, options, overrides = CASES[case]
    if not all((SAMPLES / name).exists() for name in COPIES[pipeline].values()):
        pytest.skip("run `make samples` first")
    spec = load(ROOT / f"pipelines/{pipeline}.yaml", overrides)
    export(spec, folder, **options)
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(autouse=True)
def _same_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("gepipe.machine.cpu_count", lambda: 4)


@pytest.mark.parametrize("case", CASES)
def test_an_export_is_byte_for_byte_what_it_was(case: str, tmp_path: Path) -> None:
    made = exported(tmp_path / "models", case)
    for end, source in COPIES[CASES[case][0]].items():
        (copy,) = [path for path in made if path.endswith(end)]
        assert made.pop(copy) == (SAMPLES / source).read_bytes()

    if os.environ.get("GEPIPE_GOLDEN") == "write":
        for name, content in made.items():
            (GOLDEN / case / name).parent.mkdir(parents=True, exist_ok=True)
            (GOLDEN / case / name).write_bytes(content)

    wanted = {
        path.relative_to(GOLDEN / case).as_posix(): path.read_bytes()
        for path in sorted((GOLDEN / case).rglob("*"))
        if path.is_file()
    }
    assert sorted(made) == sorted(wanted)
    assert made == wanted


@pytest.mark.parametrize("case", CASES)
def test_the_linter_finds_nothing_in_an_export(case: str, tmp_path: Path) -> None:
    exported(tmp_path / "models", case)

    assert lint(tmp_path / "models", describe=describe).problems == ()


def test_an_export_from_elsewhere_makes_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = exported(tmp_path / "one", "ensemble")
    text = (ROOT / "pipelines/classify.yaml").read_text()
    place = tmp_path / "elsewhere"
    place.mkdir()
    (place / "samples").symlink_to(ROOT / "samples")
    (place / "classify.yaml").write_text(text)
    monkeypatch.chdir(place)

    export(load("classify.yaml"), Path("models"))

    there = {
        path.relative_to(place / "models").as_posix(): path.read_bytes()
        for path in sorted((place / "models").rglob("*"))
        if path.is_file()
    }
    assert there == here
