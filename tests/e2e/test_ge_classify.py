"""The ready pipeline on the GE backend: the same file, the same answers, on an emulated NPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gepipe

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "samples/models/efficientnet_lite0.onnx"
pytestmark = pytest.mark.skipif(not MODEL.exists(), reason="run `make samples` first")


def run(output: Path, *overrides: str) -> tuple[bytes, tuple[str, ...]]:
    pipeline = gepipe.Pipeline.from_yaml(ROOT / "pipelines/classify.yaml", overrides)
    report = pipeline.job(output=str(output)).run()
    return output.read_bytes(), report.notes


def test_onnx_model_is_converted_and_gives_the_same_answers(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("GEPIPE_CACHE", str(tmp_path / "cache"))

    onnx, _ = run(tmp_path / "onnx.jsonl", "preprocess.batch_size=8")
    emulated = "inference.backend={ge: {device: emulator}}"
    ge, notes = run(tmp_path / "ge.jsonl", "preprocess.batch_size=8", emulated)

    assert ge == onnx
    assert any("EMULATED NPU" in note for note in notes)
    assert list((tmp_path / "cache").rglob("*.om"))


def test_preprocessing_on_the_card_gives_the_same_classes(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("GEPIPE_CACHE", str(tmp_path / "cache"))

    host, _ = run(tmp_path / "host.jsonl")
    emulated = "inference.backend={ge: {device: emulator, aipp: true}}"
    card, notes = run(tmp_path / "card.jsonl", emulated)

    def classes(lines: bytes) -> list[list[int]]:
        records = map(json.loads, lines.splitlines())
        return [[top["class"] for top in each["result"]["top_k"]] for each in records]

    assert classes(card) == classes(host)
    assert any("takes uint8 pixels" in note for note in notes)
