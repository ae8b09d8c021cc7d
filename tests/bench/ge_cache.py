"""A model for the NPU: converted and loaded, against found in the cache and loaded.

The conversion is the emulator's, which takes a fraction of a second; `atc` takes minutes, so that a
card gains far more. Each trial is a process of its own, as the first run of a job is.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import harness
from harness import ROOT, Figure

NAME = "ge_cache"
MODEL = ROOT / "samples/models/efficientnet_lite0.onnx"


def trial(variant: str) -> dict[str, float]:
    """Time the way from an ONNX file to an open engine."""
    import numpy as np  # noqa: F401 - every process that computes has loaded it before

    from gepipe.engines.engine import EngineOptions
    from gepipe.engines.ge.engine import GeEngine
    from gepipe.models.convert import ensure_om
    from gepipe.models.options import ConvertOptions
    from gepipe.models.store import default_folder

    options = ConvertOptions(soc="emulator", gears=(1, 4, 8))
    if variant == "cached":
        ensure_om(MODEL, options)
    elif default_folder().exists():
        shutil.rmtree(default_folder())
    emulated = EngineOptions(extra={"device": "emulator"})
    begin = time.perf_counter()
    engine = GeEngine.open(ensure_om(MODEL, options), emulated)
    seconds = time.perf_counter() - begin
    engine.close()
    return {"seconds": seconds}


def measure(rounds: int) -> list[Figure]:
    """Measure both, with a cache of the benchmark's own."""
    folder = tempfile.mkdtemp(prefix="gepipe-bench-")
    before = os.environ.get("GEPIPE_CACHE")
    os.environ["GEPIPE_CACHE"] = folder
    try:
        results = harness.interleave(NAME, ["converted", "cached"], rounds)
    finally:
        shutil.rmtree(Path(folder), ignore_errors=True)
        os.environ.pop("GEPIPE_CACHE")
        if before is not None:
            os.environ["GEPIPE_CACHE"] = before
    ratio = harness.ratio(results["converted"], results["cached"], "seconds")
    details = {name: harness.medians(each) for name, each in results.items()}
    what = "converting and loading a model / loading it from the cache, emulated"
    return [Figure(NAME, what, ratio, 4.0, details=details)]
