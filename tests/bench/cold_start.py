"""`gepipe run` of one photo, as a whole process, against bare imports and the model's load."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness
from harness import ROOT, Figure

NAME = "cold_start"
_MODEL = "samples/models/efficientnet_lite0.onnx"
_PHOTO = "samples/media/photos/chelsea.png"
_BARE = f"""
import numpy, cv2, onnxruntime
onnxruntime.InferenceSession({_MODEL!r}, providers=["CPUExecutionProvider"])
"""
_REPEATS = 3


def trial(variant: str) -> dict[str, float]:
    """Time a whole process, the fastest of a few: files are in the page cache, and compiled."""
    return {"s": min(_once(variant) for _ in range(_REPEATS))}


def _once(variant: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "out.jsonl")
        command = [sys.executable, "-c", _BARE]
        if variant == "gepipe run":
            gepipe = Path(sys.executable).with_name("gepipe")
            command = [str(gepipe), "run", "pipelines/classify.yaml", "--quiet"]
            command += ["--input", _PHOTO, "--output", str(output)]
        elif variant == "python":
            command = [sys.executable, "-c", "pass"]
        begin = time.perf_counter()
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - begin
        assert variant != "gepipe run" or output.read_text().count("\n") == 1
        return seconds


def measure(rounds: int) -> list[Figure]:
    """Measure the ratio."""
    results = harness.interleave(NAME, ["gepipe run", "bare", "python"], rounds)
    ratio = harness.ratio(results["gepipe run"], results["bare"], "s")
    details = {name: harness.medians(run) for name, run in results.items()}
    what = "cold `gepipe run` of one photo / bare imports + model load"
    return [Figure(NAME, what, ratio, 2.0, False, details)]
