"""720p JPEG photos through an accelerator that takes 61.5 ms for 32 of them.

gepipe against the physical bounds and against loops written by hand, each timed from the moment its
workers are ready to the last result; gepipe's whole process is told beside it.
"""

from __future__ import annotations

import os
import time
import zlib
from typing import Any

import harness
import media
from harness import Figure

NAME = "jpeg_job"
PHOTOS = 2048
_LOOPS = {
    "expert threads": ("expert_threads", {}),
    "expert threads, nice": ("expert_threads", {"nice": 10}),
    "plain threads": ("plain_threads", {}),
    "process pool": ("process_pool", {}),
    "serial": ("serial", {}),
}
_BOUND, _OURS = "pre alone", "gepipe"
_PIPELINE = """
stages:
  - name: preprocess
    batch_size: {batch}
    ops:
      - decode_image: {{color: rgb}}
      - resize: {{short_side: 256}}
      - center_crop: {{size: [224, 224]}}
      - normalize: {{mean: 127, std: 128}}
      - to_tensor: {{layout: nchw}}
  - name: inference
    backend: {{latency_table: {{table: {{{batch}: {latency}}}}}}}
  - name: postprocess
    ops: [top_k: 5]
"""


def trial(variant: str, photos: int = PHOTOS) -> dict[str, float]:
    """Measure one variant, in this process."""
    paths = media.jpegs(PHOTOS)[:photos]
    if variant == _BOUND:
        return _pre_alone(paths[:512])
    if variant == _OURS:
        return _gepipe(paths)
    import loops

    function, options = _LOOPS[variant]
    results, seconds = loops.timed(getattr(loops, function)(paths, **options))
    return {"rate": len(results) / seconds, "answer": _answer(results)}


def _pre_alone(paths: list[str]) -> dict[str, float]:
    """Measure the fused preprocessing by itself, one thread, malloc tuned."""
    import cv2
    import loops
    import numpy as np

    loops.tuning.keep_freed_memory()
    cv2.setNumThreads(1)
    program, rows = loops.fused_program(), np.zeros((loops.BATCH, *loops.ROW), np.float32)
    for path in paths[:16]:
        loops.fused_pre(program, path, rows[0])
    begin = time.process_time()  # not the clock: others on the machine do not move the bound
    for number, path in enumerate(paths):
        loops.fused_pre(program, path, rows[number % loops.BATCH])
    seconds = (time.process_time() - begin) / len(paths)
    return {"ms": 1e3 * seconds, "rate": len(os.sched_getaffinity(0)) / seconds}


def _gepipe(paths: list[str]) -> dict[str, float]:
    begin = time.perf_counter()
    from loops import BATCH, LATENCY_S

    from gepipe.pipeline.pipeline import Pipeline
    from gepipe.spec.load import loads

    spec = loads(_PIPELINE.format(batch=BATCH, latency=LATENCY_S))
    with Pipeline(spec) as pipeline:
        for _ in pipeline.run(paths[:8]):
            pass
        ready = time.perf_counter()
        results = [result.value for result in pipeline.run(paths)]
        seconds = time.perf_counter() - ready
        statistics = pipeline.statistics()
    assert statistics is not None
    classes = [[entry["class"] for entry in result["top_k"]] for result in results]
    return {
        "rate": len(results) / seconds,
        "rate_by_statistics": statistics.rate,
        "ready_s": ready - begin,
        "accelerator_busy": statistics.stages["infer"].utilisation,
        "pre_busy": statistics.stages["pre"].utilisation,
        "answer": _answer(classes),
    }


def _answer(results: list[Any]) -> float:
    return zlib.crc32(repr(results).encode())


def measure(rounds: int, photos: int = PHOTOS) -> list[Figure]:
    """Measure all variants."""
    media.jpegs(PHOTOS)
    results = harness.interleave(NAME, [_BOUND, _OURS, *_LOOPS], rounds, photos=photos)
    ours, pre = results[_OURS], results[_BOUND]
    experts = [results[name] for name in _LOOPS if name.startswith("expert")]
    if {each["answer"] for run in (ours, *experts) for each in run} != {ours[0]["answer"]}:
        raise SystemExit("gepipe and the expert's loop differ in their results")
    from loops import BATCH, LATENCY_S

    accelerator = BATCH / LATENCY_S
    bounds = [{"rate": min(accelerator, each["rate"])} for each in pre]
    expert = max(experts, key=lambda run: harness.medians(run)["rate"])
    details = {
        "photos": photos,
        "accelerator_bound": accelerator,
        "cpu_bound": harness.medians(pre),
        **{name: harness.medians(run) for name, run in results.items() if name != _BOUND},
        "lowest_highest": {name: harness.spread(run) for name, run in results.items()},
    }
    figures = [
        Figure(NAME, "throughput / min(bounds)", harness.ratio(ours, bounds), 0.97, True, details),
        Figure(NAME, "… / expert's thread loop", harness.ratio(ours, expert), 1.0),
    ]
    goals = {"plain threads": 1.3, "process pool": None, "serial": None}
    return figures + [
        Figure(NAME, f"… / {name} loop", harness.ratio(ours, results[name]), goal)
        for name, goal in goals.items()
    ]
