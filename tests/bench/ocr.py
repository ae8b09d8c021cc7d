"""Fifty invoices through the sample finder and reader of text: gepipe against loops by hand.

Loops take one page after the other; they are timed from the moment their models are open. Of
gepipe's job, what a run does once is left out by the difference of a long and a short one.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import harness
from harness import ROOT, Figure

NAME = "ocr"
PAGES = 50
_SHORT = 16  # long enough for all workers to be started
_OURS = "gepipe"
_LOOPS: dict[str, dict[str, Any]] = {
    "sequential loop": {"batch": 1},
    "sequential loop, six lines at a time": {"batch": 6},
}
_CORES = 2
PIPELINE = ROOT / "pipelines" / "ocr.yaml"
_FOLDER = ROOT / "samples" / "media" / "pages"


def trial(variant: str, pages: int = PAGES) -> dict[str, float]:
    """Measure one variant."""
    paths = sorted(map(str, _FOLDER.glob("invoice-*.png")))[:pages]
    assert len(paths) == pages
    if variant == _OURS:
        return _gepipe(paths)
    import loops
    import page_loops

    results, seconds = loops.timed(page_loops.sequential(paths, _CORES, **_LOOPS[variant]))
    return {
        "rate": len(paths) / seconds,
        "lines": sum(map(len, results)),
        "characters": sum(len(line) for lines in results for line in lines),
    }


def _gepipe(paths: list[str]) -> dict[str, float]:
    from gepipe.pipeline.job import Job
    from gepipe.spec.load import load

    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for inputs in (paths[:_SHORT], paths[:_SHORT], paths[:_SHORT] + paths):
            target = Path(folder, f"{len(seconds)}.jsonl")
            job = Job(load(PIPELINE), inputs=inputs, output=str(target))
            begin = time.perf_counter()
            report = job.run()
            seconds.append(time.perf_counter() - begin)
            assert (report.total, report.failed) == (len(inputs), 0), report
        records = [json.loads(line)["result"] for line in target.read_text().splitlines()]
    assert report.statistics is not None
    lines = [line["text"] for record in records[_SHORT:] for line in record["lines"]]
    return {
        "rate": len(paths) / (seconds[2] - seconds[1]),
        "lines": len(lines),
        "characters": sum(map(len, lines)),
        **{f"{role}_busy": s.utilisation for role, s in report.statistics.stages.items()},
    }


def measure(rounds: int, pages: int = PAGES) -> list[Figure]:
    """Measure all variants."""
    runs = harness.interleave(NAME, [_OURS, *_LOOPS], rounds, pages=pages)
    counts = [run[0]["characters"] for run in runs.values()]
    if max(counts) > 1.02 * min(counts):
        raise SystemExit(f"the variants differ in what they read: {counts} characters")
    details = {
        **{name: harness.medians(run) for name, run in runs.items()},
        "lowest_highest": {name: harness.spread(run) for name, run in runs.items()},
    }
    one, six = (harness.ratio(runs[_OURS], runs[name]) for name in _LOOPS)
    return [
        Figure(NAME, f"OCR of {pages} pages / sequential loop, a line at a time", one, 1.4),
        Figure(NAME, "… / sequential loop, six lines at a time", six, details=details),
    ]
