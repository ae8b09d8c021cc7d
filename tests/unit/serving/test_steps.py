from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gepipe.errors import ConfigError, ItemError
from gepipe.ops.plan import plan_post, plan_pre
from gepipe.pipeline.bodies import NanError
from gepipe.serving.itemmeta import from_json, to_json
from gepipe.serving.steps import META, RESULT, Postprocess, Preprocess, RowFailed
from gepipe.spec import loads
from tests.support import jpeg

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


def stepped(step, text: str, inputs, outputs):
    step._spec = loads(text)
    step._set_up({"input": inputs, "output": outputs})
    return step


def texts(*values: bytes) -> np.ndarray:
    return np.array([[value] for value in values], object)


@pytest.fixture
def pre() -> Preprocess:
    outputs = [tensor("x", "FP32", (3, 8, 8)), tensor(META, "STRING", (1,))]
    return stepped(Preprocess(), PIPELINE, [tensor("IMAGE", "STRING", (1,))], outputs)


@pytest.fixture
def post() -> Postprocess:
    inputs = [tensor("y", "FP32", (4,)), tensor(META, "STRING", (1,))]
    return stepped(Postprocess(), PIPELINE, inputs, [tensor(RESULT, "STRING", (1,))])


def test_images_become_rows_and_metas(pre) -> None:
    images = [jpeg(seed=1), jpeg(20, 30, seed=2)]

    made = pre._process({"IMAGE": texts(*images)})

    program = plan_pre(loads(PIPELINE).pre.ops)
    program.setup()
    for row, image in enumerate(images):
        expected = np.empty((3, 8, 8), np.float32)
        meta: dict = {}
        program(image, meta, {"x": expected})
        assert np.array_equal(made["x"][row], expected)
        assert from_json(made[META][row, 0]) == meta
    assert made["x"].shape == (2, 3, 8, 8)


def test_bad_image_names_its_row_where_there_are_several(pre) -> None:
    with pytest.raises(RowFailed) as caught:
        pre._process({"IMAGE": texts(jpeg(), b"no image")})
    assert caught.value.shown == 1
    assert caught.value.error.kind == "not_an_image"

    with pytest.raises(RowFailed) as caught:
        pre._process({"IMAGE": texts(b"")})
    assert caught.value.shown is None
    assert caught.value.error.kind == "empty"


def test_images_of_the_wrong_shape_are_refused(pre) -> None:
    with pytest.raises(ItemError, match=r"input 'IMAGE' has shape \[1, 2\]; expected \[n, 1\]"):
        pre._process({"IMAGE": np.array([[b"a", b"b"]], object)})


def test_arrays_go_to_the_model_as_they_are() -> None:
    text = PIPELINE.replace(
        "[{decode_image: {}}, {resize: {size: [8, 8]}}, {to_tensor: {layout: nchw}}]", "[]"
    )
    outputs = [tensor("x", "FP32", (4,)), tensor(META, "STRING", (1,))]
    step = stepped(Preprocess(), text, [tensor("INPUT", "FP32", (4,))], outputs)
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)

    made = step._process({"INPUT": rows})

    assert np.array_equal(made["x"], rows)
    with pytest.raises(ItemError, match="'INPUT' is float32"):
        step._process({"INPUT": rows[:, :3]})


def test_outputs_of_the_first_step_need_an_extent() -> None:
    outputs = [tensor("x", "FP32", (3, -1, 8)), tensor(META, "STRING", (1,))]
    with pytest.raises(ConfigError, match="expected numbers in its dims"):
        stepped(Preprocess(), PIPELINE, [tensor("IMAGE", "STRING", (1,))], outputs)


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
    assert post._stage(caught.value.error.role) == "model"
    assert post._stage(None) == "finish"


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
