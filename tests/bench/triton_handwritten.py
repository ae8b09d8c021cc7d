"""The Python ensemble that people write by hand for the JPEG job, as a model repository.

Plain OpenCV in two instances, a model that only takes time, an argsort behind it; each step in
Triton's python backend, requests merged in front of the model. The times are those of the emulated
card: 22 ms for a batch of 1, 44.4 ms for up to 8, 61.5 ms for up to 32.
"""

from __future__ import annotations

from pathlib import Path

_PREPROCESS = """
import cv2
import numpy as np
import triton_python_backend_utils as pb_utils

cv2.setNumThreads(1)


class TritonPythonModel:
    def execute(self, requests):
        replies = []
        for request in requests:
            rows = []
            for blob in pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()[:, 0]:
                image = cv2.imdecode(np.frombuffer(blob, np.uint8), cv2.IMREAD_COLOR)
                image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
                height, width = image.shape[:2]
                scale = 256 / min(height, width)
                image = cv2.resize(image, (round(width * scale), round(height * scale)))
                top, left = (image.shape[0] - 224) // 2, (image.shape[1] - 224) // 2
                crop = image[top : top + 224, left : left + 224]
                rows.append(((crop.astype(np.float32) - 127) / 128).transpose(2, 0, 1))
            tensor = pb_utils.Tensor("x", np.stack(rows))
            replies.append(pb_utils.InferenceResponse([tensor]))
        return replies
"""
_INFERENCE = """
import time

import numpy as np
import triton_python_backend_utils as pb_utils

LATENCY_S = {1: 0.022, 8: 0.0444, 32: 0.0615}


class TritonPythonModel:
    def execute(self, requests):
        parts = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        batch = np.concatenate(parts)
        time.sleep(min(s for size, s in LATENCY_S.items() if size >= len(batch)))
        scores = np.zeros((len(batch), 1000), np.float32)
        scores[np.arange(len(batch)), np.arange(len(batch)) % 1000] = 1
        replies, at = [], 0
        for part in parts:
            tensor = pb_utils.Tensor("y", scores[at : at + len(part)])
            replies.append(pb_utils.InferenceResponse([tensor]))
            at += len(part)
        return replies
"""
_POSTPROCESS = """
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        replies = []
        for request in requests:
            scores = pb_utils.get_input_tensor_by_name(request, "y").as_numpy()
            records = []
            for row in scores:
                best = np.argsort(-row)[:5]
                entries = [{"class": int(each), "score": float(row[each])} for each in best]
                records.append([json.dumps({"top_k": entries}).encode()])
            tensor = pb_utils.Tensor("RESULT", np.array(records, dtype=object))
            replies.append(pb_utils.InferenceResponse([tensor]))
        return replies
"""
_CONFIGS = {
    "byhand_preprocess": """
backend: "python"
max_batch_size: 32
input [ { name: "IMAGE" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "x" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] } ]
instance_group [ { kind: KIND_CPU count: 2 } ]
""",
    "byhand_inference": """
backend: "python"
max_batch_size: 32
input [ { name: "x" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1000 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
dynamic_batching { }
""",
    "byhand_postprocess": """
backend: "python"
max_batch_size: 32
input [ { name: "y" data_type: TYPE_FP32 dims: [ 1000 ] } ]
output [ { name: "RESULT" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
""",
    "byhand": """
platform: "ensemble"
max_batch_size: 32
input [ { name: "IMAGE" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "RESULT" data_type: TYPE_STRING dims: [ 1 ] } ]
ensemble_scheduling { step [
  { model_name: "byhand_preprocess" model_version: -1
    input_map { key: "IMAGE" value: "IMAGE" } output_map { key: "x" value: "x" } },
  { model_name: "byhand_inference" model_version: -1
    input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } },
  { model_name: "byhand_postprocess" model_version: -1
    input_map { key: "y" value: "y" } output_map { key: "RESULT" value: "RESULT" } } ] }
""",
}
_CODE = {
    "byhand_preprocess": _PREPROCESS,
    "byhand_inference": _INFERENCE,
    "byhand_postprocess": _POSTPROCESS,
}


def write(repository: Path) -> str:
    """Write the repository and return the model to call."""
    for name, config in _CONFIGS.items():
        version = repository / name / "1"
        version.mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(config.lstrip())
        if name in _CODE:
            (version / "model.py").write_text(_CODE[name].lstrip())
        else:
            (version / ".keep").touch()
    return "byhand"
