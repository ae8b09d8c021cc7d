from __future__ import annotations

from pathlib import Path

import pytest

from gepipe.serving.bundle import load_bundle
from gepipe.serving.itemmeta import from_json, to_json

PIPELINE = """
stages:
  - name: prepare
    role: pre
    ops: [{decode_image: {}}, {resize: {size: [8, 8]}}, {to_tensor: {layout: nchw}}]
  - {name: model, role: infer, model: model.onnx}
  - {name: finish, role: post, ops: [{top_k: {k: 2}}]}
"""


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {"a": 1, "b": 2.5, "c": "ä\n", "d": None, "e": True, "f": [1, [2]]},
        {"size": (3, (4, "x")), "raw": b"\x00\xff", "z": 1 + 2j, "s": {1, 2}, "f": frozenset("a")},
        {"deep": {1: "one", (2, 3): {"$tuple": 7}}, "$bytes": "no bytes"},
        {"inf": float("inf")},
    ],
)
def test_meta_comes_back_as_it_was(meta) -> None:
    back = from_json(to_json(meta))
    assert back == meta
    assert repr(back) == repr(meta)


def test_pipeline_lies_beside_the_model(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    assert load_bundle(tmp_path).pre.name == "prepare"
