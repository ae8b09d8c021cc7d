"""CPU time of the supervising thread an item, at batch 32, with stages that do next to nothing."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import harness
from harness import Figure

NAME = "supervisor_cost"
ITEMS = 40_000
BATCH = 32
_JOB = """
source: {{list: {folder}/list.txt}}
stages:
  - {{name: preprocess, batch_size: 32, threads: 1, ops: [{{python: "stages:nothing"}}]}}
  - name: inference
    backend:
      latency_table:
        table: {{32: 0.0}}
        inputs: {{x: [uint8, 64]}}
        outputs: {{y: [float32, 1]}}
  - {{name: postprocess, stream_count: 1, ops: [identity]}}
sink: {{jsonl: {folder}/out.jsonl}}
"""


def trial(variant: str, items: int = ITEMS) -> dict[str, float]:
    """Measure the supervisor by itself, or all that the main thread does in a job into a file."""
    return _job(items) if variant == "job" else _supervisor(items)


def _supervisor(items: int) -> dict[str, float]:
    from bodies import Bare

    runtime = Bare(64, BATCH)
    runtime.run(10 * BATCH)
    statistics, spent_s = runtime.run(items)
    runtime.close()
    return {"us": 1e6 * spent_s / items, "rate": statistics.rate}


def _job(items: int) -> dict[str, float]:
    from gepipe.pipeline.job import Job
    from gepipe.spec.load import loads

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "one.bin")
        path.write_bytes(b"x")
        Path(folder, "list.txt").write_text(f"{path}\n" * items)
        spec = loads(_JOB.format(folder=folder))
        spent = []
        # The first loads modules; the difference of the others leaves out what a run does once.
        for limit in (BATCH, items // 4, items):
            begin = time.thread_time()
            report = Job(spec, limit=limit).run()
            spent.append(time.thread_time() - begin)
            assert report.statistics is not None
            assert report.statistics.done == limit, report
        return {
            "us": 1e6 * (spent[2] - spent[1]) / (items - items // 4),
            "rate": report.statistics.rate,
        }


def measure(rounds: int, items: int = ITEMS) -> list[Figure]:
    """Measure the cost."""
    results = harness.interleave(NAME, ["supervisor", "job"], rounds, items=items)
    details = {name: harness.medians(run) for name, run in results.items()}
    details |= {"items": items, "batch": BATCH}
    return [
        Figure(NAME, "supervisor CPU an item, µs", details["supervisor"]["us"], 12, False, details),
        Figure(NAME, "… with listing inputs and writing JSON lines, µs", details["job"]["us"]),
    ]
