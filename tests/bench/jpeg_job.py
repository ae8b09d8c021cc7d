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
LATENCY_S = 0.0615  # 520 photos a second
_BATCH = 32
FAST_S = 0.030  # 1,067 a second: more than two cores can feed
_LOOPS = {
    "expert threads": ("expert_threads", {}),
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


def trial(variant: str, photos: int = PHOTOS, latency_s: float = LATENCY_S) -> dict[str, float]:
    """Measure one variant, in this process."""
    paths = media.jpegs(PHOTOS)[:photos]
    if variant == _BOUND:
        return _pre_alone(paths[:512])
    if variant == _OURS:
        return _gepipe(paths, latency_s)
    import loops

    function, options = _LOOPS[variant]
    results, seconds = loops.timed(getattr(loops, function)(paths, latency_s, **options))
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


def _gepipe(paths: list[str], latency_s: float) -> dict[str, float]:
    begin = time.perf_counter()
    from gepipe.pipeline.pipeline import Pipeline
    from gepipe.spec.load import loads

    spec = loads(_PIPELINE.format(batch=_BATCH, latency=latency_s))
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
    """Measure all variants, then the fastest of them with an accelerator that waits for pre."""
    media.jpegs(PHOTOS)
    slow = _Results(rounds, photos, LATENCY_S, [*_LOOPS])
    fast = _Results(rounds, photos, FAST_S, ["expert threads", "plain threads"])
    return [
        Figure(NAME, "throughput / min(bounds)", slow.of_bound(), 0.97, True, slow.details()),
        Figure(NAME, "… / expert's thread loop", slow.of_expert(), 1.0),
        Figure(NAME, "… / plain 2-thread cv2 loop", slow.of("plain threads"), 1.3),
        Figure(NAME, "… / process pool loop", slow.of("process pool")),
        Figure(NAME, "… / serial loop", slow.of("serial")),
        Figure(
            NAME, "pre is the slowest stage: / min(bounds)", fast.of_bound(), details=fast.details()
        ),
        Figure(NAME, "… / expert's thread loop", fast.of_expert()),
        Figure(NAME, "… / plain 2-thread cv2 loop", fast.of("plain threads")),
    ]


class _Results:
    """The variants with one accelerator, round by round."""

    def __init__(self, rounds: int, photos: int, latency_s: float, loops: list[str]) -> None:
        harness.say(f" accelerator of {1e3 * latency_s:g} ms a batch")
        variants = [_BOUND, _OURS, *loops]
        self._runs = harness.interleave(NAME, variants, rounds, photos=photos, latency_s=latency_s)
        self._ours = self._runs[_OURS]
        self._accelerator = _BATCH / latency_s
        self._bounds = [{"rate": min(self._accelerator, e["rate"])} for e in self._runs[_BOUND]]
        experts = [self._runs[name] for name in loops if name.startswith("expert")]
        self._expert = max(experts, key=lambda run: harness.medians(run)["rate"])
        answers = {each["answer"] for run in (self._ours, *experts) for each in run}
        if len(answers) > 1:
            raise SystemExit("gepipe and the expert's loop differ in their results")

    def of(self, name: str) -> float:
        return harness.ratio(self._ours, self._runs[name])

    def of_bound(self) -> float:
        return harness.ratio(self._ours, self._bounds)

    def of_expert(self) -> float:
        return harness.ratio(self._ours, self._expert)

    def details(self) -> dict[str, Any]:
        return {
            "accelerator_bound": self._accelerator,
            **{name: harness.medians(run) for name, run in self._runs.items()},
            "lowest_highest": {name: harness.spread(run) for name, run in self._runs.items()},
        }
