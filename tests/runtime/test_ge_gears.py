"""What the pre stage makes and a model with several shapes, before the first item and in a run."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

import gepipe
from gepipe.emulator.om import Gears, OmTensor, write_om
from gepipe.errors import ConfigError
from gepipe.pipeline.check import check

pytestmark = pytest.mark.usefixtures("emulated")


@pytest.fixture
def emulated(monkeypatch) -> None:
    monkeypatch.setenv("GEPIPE_ACL", "emulator")
    monkeypatch.setenv("GEPIPE_ACL_MODE", "strict")


@pytest.fixture
def pipeline(tmp_path):
    """Return a function that writes a pipeline whose pre stage makes images of a size."""
    sizes = ((8, 8), (16, 12))
    write_om(
        tmp_path / "m.om",
        None,
        inputs=[OmTensor("x", "float32", (2, 3, -1, -1), "NCHW")],
        outputs=[OmTensor("y", "float32", (2, -1))],
        gears=Gears("hw", sizes),
        output_shapes=[[(2, h * w)] for h, w in sizes],
    )
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((20, 20, 3), np.uint8))

    def write(size: list[int]):
        path = tmp_path / "p.yaml"
        ops = f"decode_image, {{resize: {{size: {size}}}}}, {{normalize: {{mean: 0}}}}, to_tensor"
        path.write_text(
            f"""
source: {{images: {tmp_path}/a.png}}
sink: {{jsonl: {tmp_path}/out.jsonl}}
stages:
  - {{name: preprocess, ops: [{ops}]}}
  - {{name: inference, model: m.om}}
  - {{name: postprocess}}
"""
        )
        return path

    return write


def test_a_size_without_a_gear_is_refused_before_the_first_item(pipeline) -> None:
    path = pipeline([10, 10])

    found = check(path)

    assert len(found.errors) == 1
    assert "[height, width]: [8, 8], [16, 12]; make one that it has" in found.errors[0]
    with gepipe.Pipeline.from_yaml(path) as opened, pytest.raises(ConfigError, match=r"\[8, 8\]"):
        opened.job().run()


def test_the_size_that_pre_makes_settles_what_the_outputs_are(pipeline) -> None:
    path = pipeline([16, 12])

    assert check(path).errors == []
    with gepipe.Pipeline.from_yaml(path) as opened:
        report = opened.job().run()

    assert report.failed == 0
    assert report.statistics is not None
    assert report.statistics.done == 1
