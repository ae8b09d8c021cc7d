from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gepipe.errors import ItemError
from gepipe.ops.plan import plan_post
from gepipe.pipeline.bodies import NanError
from gepipe.serving.itemmeta import META, from_json, to_json
from gepipe.serving.postprocess import RESULT, Postprocess
from gepipe.serving.replies import RowFailed
from gepipe.spec import loads

PIPELINE = """
stages:
  - name: prepare
    role: pre
    ops: [{decode_image: {}}, {resize: {size: [8, 8]}}, {to_tensor: {layout: nchw}}]
  - {name: model, role: infer, model: model.onnx}
  - {name: finish, role: post, ops: [{top_k: {k: 2}}]}
"""


def tensor(name: str, kind: str, dims) -> dict:
    return {"name": name, "data_type": f"TYPE_{kind}", "dims": list(dims)}


def texts(*values: bytes) -> np.ndarray:
    return np.array([[value] for value in values], object)


@pytest.fixture
def post(tmp_path) -> Postprocess:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    step = Postprocess()
    step._open(
        tmp_path,
        {
            "input": [tensor("y", "FP32", (4,)), tensor(META, "STRING", (1,))],
            "output": [tensor(RESULT, "STRING", (1,))],
        },
    )
    return step


def test_outputs_become_results(post) -> None:
    rows = np.array([[0.1, 0.9, 0.3, 0.2], [4, 3, 2, 1]], np.float32)

    made = post._process({"y": rows, META: texts(b"{}", to_json({"width": 3}))})

    program = plan_post(loads(PIPELINE).post.ops)
    program.setup()
    for row in (0, 1):
        expected = program({"y": rows[row]}, {})
        assert json.loads(made[RESULT][row, 0]) == json.loads(json.dumps(expected, default=float))


def test_nan_is_the_models_failure(post) -> None:
    rows = np.full((1, 4), np.nan, np.float32)

    with pytest.raises(RowFailed) as caught:
        post._process({"y": rows, META: texts(b"{}")})

    assert isinstance(caught.value.error, NanError)
    assert post._blamed(caught.value.error) == "model"
    assert post._blamed(ItemError("x", "y")) == "finish"


@pytest.mark.parametrize("meta", [b"", b"[1]", b"{", b'{"$tuple": 3}', b'{"$dict": [[[], 1]]}'])
def test_meta_of_somebody_else_is_refused(post, meta) -> None:
    with pytest.raises(RowFailed) as caught:
        post._process({"y": np.zeros((1, 4), np.float32), META: texts(meta)})
    assert caught.value.error.kind == "meta"


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
    from gepipe.serving.bundle import load_bundle

    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    assert load_bundle(tmp_path).pre.name == "prepare"
