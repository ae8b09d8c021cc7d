"""Pictures of many sizes through real workers: results are those of the model by itself."""

from __future__ import annotations

import json
import threading
from functools import partial

import cv2
import numpy as np
import onnxruntime
import pytest

import gepipe
from gepipe.emulator.om import Gears, OmTensor, write_om
from gepipe.errors import ExportError
from gepipe.io.failures import Failure
from gepipe.ops.image import Letterbox
from gepipe.ops.resize import Resize
from gepipe.pipeline.check import check
from gepipe.serving.export import export
from gepipe.serving.service import Service
from gepipe.spec import load
from tests.support import onnx_model
from tests.unit.engines.ge.bed import pooled

LIMITS = Resize(min_side=40, max_side=96, multiple_of=8)


@pytest.fixture
def pictures(tmp_path):
    """Twenty pictures of sizes of their own, one of them a strip, and a file that is none."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    chance = np.random.default_rng(5)
    for number in range(20):
        height, width = {3: (90, 50), 7: (1, 300)}.get(number, chance.integers(20, 160, 2))
        image = chance.integers(0, 256, (height, width, 3), np.uint8)
        cv2.imwrite(str(folder / f"{number:02}.png"), image)
    (folder / "99.png").write_bytes(b"no picture")
    return folder


@pytest.fixture
def model(tmp_path):
    weights = np.random.default_rng(1).standard_normal((2, 3, 3, 3)).astype("float32")
    return onnx_model(
        tmp_path / "m.onnx",
        [
            ("Conv", ["x", "w"], ["map"], {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
            ("GlobalAveragePool", ["map"], ["mean"], {}),
        ],
        {"x": ("float32", ["n", 3, "h", "w"])},
        {"map": ("float32", ["n", 2, "h2", "w2"]), "mean": ("float32", ["n", 2, 1, 1])},
        {"w": weights},
    )


def written(tmp_path, pictures, model, op, **infer):
    path = tmp_path / "p.yaml"
    stage = {"name": "inference", "model": str(model), **infer}
    path.write_text(
        f"""
source: {{images: {pictures}}}
sink: {{jsonl: {tmp_path}/out.jsonl}}
stages:
  - name: preprocess
    threads: 2
    ops: [decode_image, {op}, {{normalize: {{mean: 127, std: 64}}}}, to_tensor]
  - {json.dumps(stage)}
  - {{name: postprocess, ops: [{{python: "{tmp_path}/post.py:kept"}}]}}
"""
    )
    (tmp_path / "post.py").write_text(
        "def kept(outputs, meta):\n"
        "    arrays = {name: array.tolist() for name, array in outputs.items()}\n"
        "    whole = all(array.flags.c_contiguous for array in outputs.values())\n"
        "    return {**arrays, 'scale': meta['scale'], 'contiguous': whole}\n"
    )
    return path


def reports(path, *overrides):
    with gepipe.Pipeline.from_yaml(path, overrides) as pipeline:
        report = pipeline.job().run()
    lines = (path.parent / "out.jsonl").read_text().splitlines()
    return report, [json.loads(line) for line in lines]


def prepared(source, op, meta):
    image = cv2.imread(source)[:, :, ::-1]
    value = (op(image, meta).astype(np.float32) - 127) / np.float32(64)
    return np.ascontiguousarray(value.transpose(2, 0, 1)[None])


@pytest.mark.parametrize("instances", [1, 2])
def test_each_picture_goes_through_the_model_at_its_own_size(
    tmp_path, pictures, model, instances
) -> None:
    op = "{resize: {min_side: 40, max_side: 96, multiple_of: 8}}"
    path = written(tmp_path, pictures, model, op, instances=instances)
    assert check(path).errors == []

    report, records = reports(path)

    session = onnxruntime.InferenceSession(model)
    assert (report.total, report.failed, len(records)) == (21, 1, 20)
    sizes = set()
    for record in records:
        meta = {}
        x = prepared(record["source"], LIMITS, meta)
        sizes.add(x.shape)
        result = record["result"]
        for name, wanted in zip(("map", "mean"), session.run(None, {"x": x}), strict=True):
            made = np.array(result[name], np.float32)
            assert made.shape == wanted.shape[1:]
            np.testing.assert_array_equal(made, wanted[0])
        assert result["scale"] == meta["scale"]
        assert result["contiguous"]
    assert len(sizes) > 10


def test_a_model_with_image_sizes_is_given_the_smallest_that_holds_a_picture(
    tmp_path, pictures, monkeypatch
) -> None:
    monkeypatch.setenv("GEPIPE_ACL", "emulator")
    monkeypatch.setenv("GEPIPE_ACL_MODE", "strict")
    sizes = ((64, 96), (96, 64), (160, 160))
    write_om(
        tmp_path / "m.om",
        pooled(tmp_path / "graph.onnx", [2, 3, "h", "w"]),
        inputs=[OmTensor("x", "float32", (2, 3, -1, -1), "NCHW")],
        outputs=[
            OmTensor("map", "float32", (2, 2, -1, -1)),
            OmTensor("mean", "float32", (2, 2, 1, 1)),
        ],
        gears=Gears("hw", sizes),
        output_shapes=[[(2, 2, h, w), (2, 2, 1, 1)] for h, w in sizes],
    )
    listed = [list(size) for size in sizes]
    op = f"{{letterbox: {{sizes: {listed}, scale_up: false}}}}"
    path = written(tmp_path, pictures, tmp_path / "m.om", op)
    assert check(path).errors == []

    report, records = reports(path)

    session = onnxruntime.InferenceSession(pooled(tmp_path / "free.onnx", ["n", 3, "h", "w"]))
    assert (report.failed, len(records)) == (1, 20)
    seen = set()
    for record in records:
        x = prepared(record["source"], Letterbox(sizes=sizes, scale_up=False), {})
        seen.add(x.shape[2:])
        wanted = session.run(None, {"x": x})[0][0]
        np.testing.assert_allclose(record["result"]["map"], wanted, rtol=1e-4, atol=1e-4)
    assert seen == set(sizes)


def test_the_same_pipeline_runs_on_an_npu_in_a_few_sizes(tmp_path, pictures, monkeypatch) -> None:
    monkeypatch.setenv("GEPIPE_ACL", "emulator")
    monkeypatch.setenv("GEPIPE_ACL_MODE", "strict")
    monkeypatch.setenv("GEPIPE_CACHE", str(tmp_path / "cache"))
    pooled(tmp_path / "m.onnx", ["n", 3, "h", "w"])
    op = "{resize: {min_side: 40, max_side: 96, multiple_of: 8}}"
    path = written(tmp_path, pictures, tmp_path / "m.onnx", op, backend="ge")
    assert check(path).errors == []

    report, records = reports(path)

    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    assert (report.failed, len(records)) == (1, 20)
    shapes = set()
    for record in records:
        meta = {}
        x = prepared(record["source"], LIMITS, meta)
        wanted = session.run(None, {"x": x})[0][0]
        made = np.array(record["result"]["map"])
        shapes.add(made.shape)
        assert made.shape == wanted.shape
        # What lies beyond the edge is grey in the one case and zero in the other.
        np.testing.assert_allclose(made[:, :-1, :-1], wanted[:, :-1, :-1], rtol=1e-4, atol=1e-4)
    assert len(shapes) > 10


def test_a_size_that_no_limit_holds_is_refused_before_the_first_picture(
    tmp_path, pictures, model
) -> None:
    path = written(tmp_path, pictures, model, "{resize: {short_side: 40}}")

    found = check(path)

    assert len(found.errors) == 1
    assert "set max_side in `resize short_side=40`" in found.errors[0]


def test_a_service_answers_for_pictures_of_any_size(tmp_path, pictures, model) -> None:
    path = written(
        tmp_path, pictures, model, "{resize: {min_side: 40, max_side: 96, multiple_of: 8}}"
    )
    service = Service(load(path))
    files = sorted(pictures.iterdir())
    answers, done = {}, threading.Event()

    def take(name, answer) -> None:
        answers[name] = answer
        if len(answers) == len(files):
            done.set()

    try:
        service.start()
        for file in files:
            service.submit(file.read_bytes(), answer=partial(take, file))
        assert done.wait(60)
    finally:
        service.close()

    session = onnxruntime.InferenceSession(model)
    for file in files[:-1]:
        wanted = session.run(["map"], {"x": prepared(str(file), LIMITS, {})})[0][0]
        np.testing.assert_array_equal(np.float32(json.loads(answers[file])["map"]), wanted)
    assert isinstance(answers[files[-1]], Failure)


def test_a_server_of_steps_needs_one_size_and_a_fused_one_does_not(
    tmp_path, pictures, model
) -> None:
    path = written(tmp_path, pictures, model, "{resize: {max_side: 96, multiple_of: 8}}")

    with pytest.raises(ExportError, match=r"x: float32 \[3, \?, \?\].*use --layout fused"):
        export(load(path), tmp_path / "models")
    assert not (tmp_path / "models").exists()
    assert export(load(path), tmp_path / "models", layout="fused").models == ("pipeline",)
