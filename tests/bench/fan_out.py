"""CPU time of the main process a part, where each item becomes 100 parts for a second model.

All that it does for a part: into a batch, through pre, model and post, back into its item.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import harness
from harness import Figure

NAME = "fan_out"
ITEMS = 400
PARTS = 100
_FEW = 1
_PIPELINE = """
source: {{list: {folder}/list.txt}}
stages:
  - name: preprocess
    threads: 1
    batch_size: 8
    ops: [decode_image, to_tensor: {{layout: nhwc}}]
  - name: find
    role: infer
    backend: &instant
      latency_table:
        table: {{32: 0.0}}
        inputs: {{x: [float32, 8, 8, 3]}}
        outputs: {{y: [float32, 1]}}
  - name: cut
    role: mid
    threads: 1
    stream_count: 1
    batch_size: 32
    ops:
      - python: {{function: "stages:places", args: {{count: {parts}}}}}
      - crop
      - to_tensor: nhwc
  - {{name: look, role: infer, backend: *instant}}
  - {{name: postprocess, stream_count: 1, ops: [{{python: "stages:record"}}]}}
sink: {{jsonl: {folder}/out.jsonl}}
"""


def trial(variant: str, items: int = ITEMS, parts: int = PARTS) -> dict[str, float]:
    """Measure jobs of many and of few parts an item, in this process."""
    assert variant == "job"
    many, few = (_cost_s(items, count) for count in (parts, _FEW))
    return {
        "us": 1e6 * (many[0] - few[0]) / (items * (parts - _FEW)),
        "few_us_an_item": 1e6 * few[0] / items,
        "parts_a_second": items * parts / many[1],
    }


def _cost_s(items: int, parts: int) -> tuple[float, float]:
    """Return CPU seconds of this process for so many items, and the seconds they took."""
    import cv2
    import numpy as np

    from gepipe.pipeline.job import Job
    from gepipe.spec.load import loads

    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder, "one.png")
        picture.write_bytes(cv2.imencode(".png", np.full((8, 8, 3), 99, np.uint8))[1].tobytes())
        Path(folder, "list.txt").write_text(f"{picture}\n" * 3 * items)
        spec = loads(_PIPELINE.format(folder=folder, parts=parts))
        spent, seconds = [], []
        # The difference leaves out what a run does once; the first loads modules.
        for limit in (8, items, 2 * items):
            cpu, begin = time.process_time(), time.perf_counter()
            report = Job(spec, limit=limit).run()
            spent.append(time.process_time() - cpu)
            seconds.append(time.perf_counter() - begin)
            assert (report.total, report.failed) == (limit, 0), report
        return spent[2] - spent[1], seconds[2] - seconds[1]


def measure(rounds: int, items: int = ITEMS) -> list[Figure]:
    """Measure the cost."""
    results = harness.interleave(NAME, ["job"], rounds, items=items)["job"]
    middle = harness.medians(results)
    details = {**middle, "items": items, "parts": PARTS, "spread": harness.spread(results, "us")}
    return [Figure(NAME, f"fan-out 1 → {PARTS}: CPU a part, µs", middle["us"], 20, False, details)]
