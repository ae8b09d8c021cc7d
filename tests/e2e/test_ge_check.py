"""`gepipe check` on the GE backend: whether the model fits the devices."""

from __future__ import annotations

import pytest

from gepipe.pipeline.check import check
from tests.support import doubling_model

PIPELINE = """
source: {{npy: {folder}/x.npy}}
stages:
  - {{name: preprocess, batch_size: 4}}
  - name: inference
    model: {folder}/m.onnx
    instances: 2
    devices: [{device}]
    backend: {{ge: {{device: emulator, profile: {folder}/profile.yaml}}}}
  - {{name: postprocess}}
sink: {{jsonl: {folder}/out.jsonl}}
"""


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """Return a function that checks a pipeline on cards of the given memory."""
    import numpy as np

    monkeypatch.setenv("GEPIPE_CACHE", str(tmp_path / "cache"))
    doubling_model(tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.zeros((3, 4), np.float32))

    def checked(memory: str, device: int = 0):
        (tmp_path / "profile.yaml").write_text(f"devices: 2\nmemory: {memory}\n")
        file = tmp_path / "p.yaml"
        file.write_text(PIPELINE.format(folder=tmp_path, device=device))
        return check(file)

    return checked


def test_memory_of_each_device_is_told(checked) -> None:
    found = checked("1GiB")

    assert not found.errors
    assert any(note.startswith("device 0: 2 x ") for note in found.notes)


def test_device_that_is_not_there_is_named(checked) -> None:
    assert any("device 7" in error for error in checked("1GiB", device=7).errors)
