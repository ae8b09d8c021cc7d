"""Stages of 20, 22 and 16 ms: results should come every 22 ms, the accelerator never waiting."""

from __future__ import annotations

import time
from itertools import pairwise

import harness
from harness import Figure

NAME = "stage_interval"
ITEMS = 400
_PRE_S, _INFER_S, _POST_S = 0.020, 0.022, 0.016
_WARM = 20
_PIPELINE = f"""
stages:
  - name: preprocess
    threads: 1
    batch_size: 1
    ops: [{{python: {{function: "stages:slow_row", args: {{seconds: {_PRE_S}}}}}}}]
  - name: inference
    backend:
      latency_table:
        table: {{1: {_INFER_S}}}
        inputs: {{x: [uint8, 64]}}
        outputs: {{y: [float32, 10]}}
  - name: postprocess
    stream_count: 1
    ops: [{{python: {{function: "stages:slow_record", args: {{seconds: {_POST_S}}}}}}}]
"""


def trial(variant: str, items: int = ITEMS) -> dict[str, float]:
    """Measure intervals and the accelerator's share."""
    from gepipe.pipeline.pipeline import Pipeline
    from gepipe.spec.load import loads

    assert variant == "pipeline"
    with Pipeline(loads(_PIPELINE)) as pipeline:
        for _ in pipeline.run([b"x"] * 4):
            pass
        times = []
        busy: list[float] = []
        for _ in pipeline.run([b"x"] * items):
            times.append(time.perf_counter())
            statistics = pipeline.statistics()
            assert statistics is not None
            busy.append(statistics.stages["infer"].busy_s)
    steady = times[_WARM:]
    pairs = pairwise(steady)
    interval = (steady[-1] - steady[0]) / (len(steady) - 1)
    return {
        "interval_ms": 1e3 * interval,
        "ratio": interval / _INFER_S,
        "busy": (busy[-1] - busy[_WARM]) / (times[-1] - times[_WARM]),
        "longest_ms": 1e3 * max(later - sooner for sooner, later in pairs),
    }


def measure(rounds: int, items: int = ITEMS) -> list[Figure]:
    """Measure both figures."""
    results = harness.interleave(NAME, ["pipeline"], rounds, items=items)["pipeline"]
    middle = harness.medians(results)
    details = {**middle, "items": items, "lowest_highest": harness.spread(results, "ratio")}
    what = "stages of 20/22/16 ms: interval / slowest stage"
    return [
        Figure(NAME, what, middle["ratio"], 1.02, False, details),
        Figure(NAME, "… accelerator busy", middle["busy"], 0.98),
    ]
