"""The step before the model, with its real worker processes, without the server around it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest

from gepipe.errors import ConfigError, ItemError
from gepipe.ops.plan import plan_pre
from gepipe.serving.itemmeta import META, from_json
from gepipe.serving.preprocess import Preprocess
from gepipe.serving.replies import RowFailed
from gepipe.spec import loads
from tests.support import jpeg, wait_until

IMAGES = "[{decode_image: {}}, {resize: {size: [8, 8]}}, {to_tensor: {layout: nchw}}]"
PIPELINE = """
stages:
  - {{name: prepare, role: pre, ops: {ops}, timeout: 2s}}
  - {{name: model, role: infer, model: model.onnx}}
  - {{name: finish, role: post}}
"""
HOSTILE = """
import os, threading
import numpy as np
def read(data):
    if data == b"crash":
        os._exit(3)
    if data == b"hang":
        threading.Event().wait(600)
    return np.full(4, len(data), np.float32)
"""


def tensor(name: str, kind: str, dims) -> dict:
    return {"name": name, "data_type": f"TYPE_{kind}", "dims": list(dims)}


def opened(folder, ops: str, given: dict, shape, **parameters: str) -> Preprocess:
    (folder / "pipeline.yaml").write_text(PIPELINE.format(ops=ops))
    step = Preprocess()
    texts = {name: {"string_value": value} for name, value in parameters.items()}
    step._open(
        folder,
        {
            "input": [given],
            "output": [tensor("x", "FP32", shape), tensor(META, "STRING", (1,))],
            "parameters": texts,
        },
        lambda _: None,
    )
    return step


IMAGE = tensor("IMAGE", "STRING", (1,))


@pytest.fixture
def images(tmp_path) -> Iterator[Preprocess]:
    step = opened(tmp_path, IMAGES, IMAGE, (3, 8, 8), workers="1")
    yield step
    step.finalize()


@pytest.fixture
def hostile(tmp_path) -> Iterator[Preprocess]:
    (tmp_path / "ops.py").write_text(HOSTILE)
    step = opened(tmp_path, '[{python: "./ops.py:read"}]', tensor("INPUT", "STRING", (1,)), (4,))
    yield step
    step.finalize()


def made(step: Preprocess, *values) -> dict:
    (process,) = step._processes
    given = {step._input: list(values)}
    return {name: a.copy() for name, a in step._made(process, given, len(values)).items()}


@pytest.mark.parametrize("count", [1, 2, 9])
def test_images_become_rows_and_metas(images, count) -> None:
    contents = [jpeg(20, 30 + seed, seed=seed) for seed in range(count)]

    found = made(images, *contents)

    program = plan_pre(loads(PIPELINE.format(ops=IMAGES)).pre.ops)
    program.setup()
    assert found["x"].shape == (count, 3, 8, 8)
    for row, content in enumerate(contents):
        expected = np.empty((3, 8, 8), np.float32)
        meta: dict = {}
        program(content, meta, {"x": expected})
        assert np.array_equal(found["x"][row], expected)
        assert from_json(found[META][row, 0]) == meta


def test_bad_image_names_its_row_where_there_are_several(images) -> None:
    with pytest.raises(RowFailed) as caught:
        made(images, jpeg(), b"no image")
    assert caught.value.shown == 1
    assert caught.value.error.kind == "not_an_image"

    with pytest.raises(RowFailed) as caught:
        made(images, b"")
    assert caught.value.shown is None
    assert caught.value.error.kind == "empty"

    assert made(images, jpeg())["x"].shape == (1, 3, 8, 8)


def test_arrays_go_to_the_model_as_they_are(tmp_path) -> None:
    step = opened(tmp_path, "[]", tensor("INPUT", "FP32", (4,)), (4,))
    try:
        rows = np.arange(8, dtype=np.float32).reshape(2, 4)
        assert np.array_equal(made(step, *rows)["x"], rows)
    finally:
        step.finalize()


@pytest.mark.parametrize(("content", "kind"), [(b"crash", "crash"), (b"hang", "timeout")])
def test_input_that_ends_its_worker_twice_fails_alone(hostile, content, kind) -> None:
    with pytest.raises(ItemError, match="twice") as caught:
        made(hostile, content)
    assert caught.value.kind == kind

    assert made(hostile, b"12345")["x"].tolist() == [[5.0] * 4]


def test_worker_that_is_killed_while_nobody_asks_is_replaced_unnoticed(hostile) -> None:
    (started,) = hostile._processes
    process = started._session._process.process
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: process.exitcode is not None)

    assert made(hostile, b"123")["x"].tolist() == [[3.0] * 4]


@pytest.mark.parametrize(
    ("shape", "parameters", "said"),
    [
        ((3, -1, 8), {}, "expected numbers in its dims"),
        ((3, 8, 8), {"workers": "0"}, "parameter workers: expected a number of at least 1"),
        ((3, 8, 8), {"worker": "2"}, "parameter worker: unknown; did you mean 'workers'"),
    ],
)
def test_configuration_that_cannot_be_is_refused(tmp_path, shape, parameters, said) -> None:
    with pytest.raises(ConfigError, match=said):
        opened(tmp_path, IMAGES, IMAGE, shape, **parameters)


def test_operators_that_do_not_load_are_told(tmp_path) -> None:
    with pytest.raises(ConfigError, match="absent"):
        opened(tmp_path, '[{python: "absent:function"}]', IMAGE, (4,))
