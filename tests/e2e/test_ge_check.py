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
    devices: {devices}
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

    def checked(memory: str, devices: str = "[0]", faults: str = ""):
        (tmp_path / "profile.yaml").write_text(f"devices: 2\nmemory: {memory}\n{faults}")
        file = tmp_path / "p.yaml"
        file.write_text(PIPELINE.format(folder=tmp_path, devices=devices))
        return check(file)

    return checked


def test_memory_of_each_device_is_told(checked) -> None:
    found = checked("1GiB")

    assert not found.errors
    assert any(note.startswith("device 0: 2 x ") for note in found.notes)


def test_device_that_is_not_there_is_named(checked) -> None:
    assert any("device 7" in error for error in checked("1GiB", devices="[7]").errors)


def test_the_model_is_opened_on_every_device(checked) -> None:
    fault = "faults: [{call: mdl.load_from_file_with_mem, at: 1, code: 507011, device: 1}]\n"

    found = checked("1GiB", "auto", fault)

    assert any(error.startswith("inference: device 1: ") for error in found.errors), found.errors
    assert not any("device 0" in error for error in found.errors)
    assert not checked("1GiB", "auto").errors
