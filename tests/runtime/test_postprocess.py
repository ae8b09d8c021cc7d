"""The step behind the model of an ensemble: real processes, which hostile rows end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gepipe.errors import ItemError
from gepipe.ops.plan import plan_post
from gepipe.serving.itemmeta import META, to_json
from gepipe.serving.merging import Query
from gepipe.serving.payloads import RESULT
from gepipe.serving.postprocess import Postprocess
from gepipe.serving.replies import RowFailed
from gepipe.spec import loads
from tests.support import wait_until

PIPELINE = """
stages:
  - name: prepare
    role: pre
    ops: [{{decode_image: {{}}}}, {{resize: {{size: [8, 8]}}}}, {{to_tensor: {{layout: nchw}}}}]
  - {{name: model, role: infer, model: model.onnx}}
  - {{name: finish, role: post, timeout: 2s, ops: [{op}]}}
"""
HOSTILE = '''
import os
import threading


def read(outputs):
    """Return the first number; 99 and 98 are no numbers to return from."""
    first = float(outputs["y"][0])
    if first == 99:
        os._exit(3)
    if first == 98:
        threading.Event().wait(600)
    if first == 97:
        raise ValueError("no such class")
    return {"first": first}
'''


def tensor(name: str, kind: str, dims) -> dict:
    return {"name": name, "data_type": f"TYPE_{kind}", "dims": list(dims)}


def texts(*values: bytes) -> np.ndarray:
    return np.array([[value] for value in values], object)


def opened(folder: Path, op: str) -> Postprocess:
    (folder / "pipeline.yaml").write_text(PIPELINE.format(op=op))
    step = Postprocess()
    step._open(
        folder,
        {
            "input": [tensor("y", "FP32", (4,)), tensor(META, "STRING", (1,))],
            "output": [tensor(RESULT, "STRING", (1,))],
            "parameters": {"workers": {"string_value": "1"}},
        },
        lambda _: None,
    )
    return step


@pytest.fixture
def post(tmp_path) -> Iterator[Postprocess]:
    step = opened(tmp_path, "{top_k: {k: 2}}")
    yield step
    step.finalize()


@pytest.fixture
def hostile(tmp_path) -> Iterator[Postprocess]:
    (tmp_path / "ops.py").write_text(HOSTILE)
    step = opened(tmp_path, '{python: "./ops.py:read"}')
    yield step
    step.finalize()


def made(step: Postprocess, rows: np.ndarray, metas: np.ndarray | None = None) -> list:
    (process,) = step._processes
    given = {"y": rows} if metas is None else {"y": rows, META: metas}
    return [json.loads(text) for text in step._made(process, given, len(rows))[RESULT][:, 0]]


def rows_of(*numbers: float) -> np.ndarray:
    return np.array([[number, 0, 0, 0] for number in numbers], np.float32)


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_outputs_become_results(post, count) -> None:
    rows = np.random.default_rng(count).random((count, 4), np.float32)

    found = made(post, rows, texts(*[to_json({"width": 3})] * count) if count else None)

    program = plan_post(loads(PIPELINE.format(op="{top_k: {k: 2}}")).post.ops)
    program.setup()
    assert found == [json.loads(json.dumps(program({"y": row}, {}), default=float)) for row in rows]


def test_nan_is_the_models_failure(post) -> None:
    with pytest.raises(RowFailed) as caught:
        made(post, np.full((1, 4), np.nan, np.float32))

    assert caught.value.error.kind == "nan"
    assert post._blamed(caught.value.error) == "model"
    assert post._blamed(ItemError("x", "y")) == "finish"


@pytest.mark.parametrize("meta", [b"", b"[1]", b"{", b'{"$tuple": 3}', b'{"$dict": [[[], 1]]}'])
def test_meta_of_somebody_else_is_refused(post, meta) -> None:
    with pytest.raises(RowFailed) as caught:
        made(post, rows_of(1), texts(meta))
    assert caught.value.error.kind == "meta"


@pytest.mark.parametrize(("number", "kind"), [(99, "crash"), (98, "timeout")])
def test_row_that_ends_its_worker_twice_fails_alone(hostile, number, kind) -> None:
    with pytest.raises(ItemError, match="twice") as caught:
        made(hostile, rows_of(1, number))
    assert caught.value.kind == kind

    assert made(hostile, rows_of(5, 6)) == [{"first": 5}, {"first": 6}]


def test_requests_that_wait_are_read_at_once_and_the_hostile_one_fails_alone(hostile) -> None:
    (process,) = hostile._processes
    calm = [Query({"y": rows_of(*numbers)}, len(numbers)) for numbers in ((1, 2), (3,), (97,))]

    at_once = hostile._together(process, calm)

    assert [json.loads(text)["first"] for text in (*at_once[0], *at_once[1])] == [1, 2, 3]
    assert at_once[2][0].kind == "ValueError"
    hostile_one = Query({"y": rows_of(99)}, 1)
    assert hostile._together(process, [calm[0], hostile_one]) is None
    assert made(hostile, rows_of(4)) == [{"first": 4}]


def test_exception_names_its_row(hostile) -> None:
    with pytest.raises(RowFailed) as caught:
        made(hostile, rows_of(1, 97))

    assert caught.value.shown == 1
    assert caught.value.error.kind == "ValueError"
    assert hostile._blamed(caught.value.error) == "finish"


def test_worker_that_is_killed_while_nobody_asks_is_replaced_unnoticed(hostile) -> None:
    (started,) = hostile._processes
    process = started._session._process.process
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: process.exitcode is not None)

    assert made(hostile, rows_of(3)) == [{"first": 3}]
