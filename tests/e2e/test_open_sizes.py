"""The models of the ready pipeline `ocr` at sizes of many kinds, against ONNX Runtime by itself."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
import pytest

import gepipe
from gepipe.engines.engine import EngineOptions
from gepipe.engines.onnx import OnnxEngine
from gepipe.tensors import TensorSpec, Variants
from gepipe.unshaped import UnshapedBuffer

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "samples/models"
pytestmark = pytest.mark.skipif(
    not (MODELS / "pp_ocrv6_rec_small.onnx").exists(),
    reason="the models are not fetched: gepipe samples fetch ocr",
)


def session(model: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options)


@pytest.fixture
def pages(tmp_path):
    """Twenty pictures of as many sizes, most of them with text."""
    folder = tmp_path / "pages"
    folder.mkdir()
    chance = np.random.default_rng(2)
    for number in range(20):
        height, width = (int(side) for side in chance.integers(40, 700, 2))
        page = np.full((height, width, 3), 250, np.uint8)
        for line in range(30, height, 40):
            words = f"line {line} of {number}"
            cv2.putText(page, words, (5, line), cv2.FONT_HERSHEY_SIMPLEX, 0.9, (20, 20, 60), 2)
        cv2.imwrite(str(folder / f"{number:02}.png"), page)
    return folder


def test_the_detector_sees_each_of_twenty_sizes_as_it_is(tmp_path, pages) -> None:
    model = MODELS / "pp_ocrv6_det_small.onnx"
    (tmp_path / "post.py").write_text(
        "import numpy as np\n"
        "def kept(outputs, meta):\n"
        "    (row,) = outputs.values()\n"
        f'    np.save({str(tmp_path)!r} + f\'/{{meta["height"]}}x{{meta["width"]}}.npy\', row)\n'
        "    return list(row.shape)\n"
    )
    path = tmp_path / "p.yaml"
    path.write_text(
        f"""
source: {{images: {pages}}}
sink: {{jsonl: {tmp_path}/out.jsonl}}
stages:
  - name: preprocess
    ops:
      - decode_image: bgr
      - resize: {{min_side: 160, max_side: 480, multiple_of: 32}}
      - normalize: {{scale: 1/255, mean: 0.5, std: 0.5}}
      - to_tensor
  - {{name: inference, model: {model}}}
  - {{name: postprocess, ops: [{{python: "{tmp_path}/post.py:kept"}}]}}
"""
    )

    report = gepipe.Pipeline.from_yaml(path).job().run()

    assert (report.total, report.failed) == (20, 0)
    direct = session(model)
    shapes = set()
    for line in (tmp_path / "out.jsonl").read_text().splitlines():
        record = json.loads(line)
        page = cv2.imread(record["source"])
        height, width = page.shape[:2]
        scale = max(1.0, 160 / min(height, width))
        scale = min(scale, 480 / max(height, width))
        size = [min(480, max(32, 32 * round(side * scale / 32))) for side in (width, height)]
        small = page if [width, height] == size else cv2.resize(page, size)
        x = (small * np.float32(1 / 255) - np.float32(0.5)) / np.float32(0.5)
        (wanted,) = direct.run(None, {"x": np.ascontiguousarray(x.transpose(2, 0, 1)[None])})
        made = np.load(tmp_path / f"{height}x{width}.npy")
        assert list(made.shape) == record["result"]
        np.testing.assert_allclose(made, wanted[0], atol=1e-5)
        shapes.add(made.shape)
    assert len(shapes) > 12


def test_lines_read_in_a_batch_and_one_by_one_agree() -> None:
    widths = (160, 320, 480)
    rows = tuple(TensorSpec("", "float32", (3, 48, width)) for width in widths)
    engine = OnnxEngine.open(
        MODELS / "pp_ocrv6_rec_small.onnx",
        EngineOptions(
            made=TensorSpec("", "float32", (3, 48, -1)), variants=Variants(rows, complete=True)
        ),
    )
    memory = np.zeros(4 * engine.largest[0], np.uint8)

    def read(x):
        room = UnshapedBuffer(memory, engine.outputs[0].row, len(x))
        engine.collect(engine.submit({"x": x}, {engine.outputs[0].name: room}, len(x)))
        return room.open(room.row).copy()

    for width in (*widths, widths[0]):
        lines = np.full((4, 48, width, 3), 255, np.uint8)
        for number, line in enumerate(lines):
            cv2.putText(line, f"No {number}", (4, 36), cv2.FONT_HERSHEY_SIMPLEX, 1.1, (0, 0, 0), 2)
        x = np.ascontiguousarray((lines.astype(np.float32) / 127.5 - 1).transpose(0, 3, 1, 2))
        together = read(x)
        alone = np.concatenate([read(x[row : row + 1]) for row in range(4)])
        assert together.shape == (4, width // 8, 18710)
        np.testing.assert_allclose(together, alone, atol=1e-5)
        assert (together.argmax(-1) == alone.argmax(-1)).all()
