"""The street video through the sample detector into an annotated MP4: gepipe against loops by hand.

With the detector on the processors, which then do everything, and with an accelerator that takes
32 ms for 8 frames and says what the detector said. Loops are timed from the moment their models are
open; of gepipe's job, what a run does once is left out by the difference of a long and a short one.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import harness
import media
from harness import ROOT, Figure

NAME = "detect_video"
FRAMES = 795  # all of it
FRAMES_ON_CPU = 264
BATCH, LATENCY_S = 8, 0.032  # 250 frames a second
_SHORT = 64  # long enough for all workers to be started
_BY_HAND = "decode thread + loop"
_EXPERT = "a thread a stage"
_ALL = "a thread a core"
_OURS = "gepipe"
PIPELINE = ROOT / "pipelines" / "detect-video.yaml"


def trial(variant: str, frames: int, latency_s: float = 0.0) -> dict[str, float]:
    """Measure one variant; without a latency, the detector runs on the processors."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        if variant == _OURS:
            return _gepipe(out, frames, latency_s)
        return _loop(variant, out / "loop.mp4", frames, latency_s)


def _loop(variant: str, out: Path, frames: int, latency_s: float) -> dict[str, float]:
    import loops
    import video_loops

    street = str(media.STREET)
    if variant == _ALL:
        loop = video_loops.thread_a_core(street, out, frames)
    else:
        batch = BATCH if latency_s else 1
        model = (
            video_loops.accelerator(batch, latency_s, media.answers_of_the_detector())
            if latency_s
            else video_loops.onnx(video_loops.CORES)
        )
        function = {
            _BY_HAND: video_loops.decode_thread,
            _EXPERT: video_loops.thread_a_stage,
        }[variant]
        loop = function(street, out, frames, model, batch)
    results, seconds = loops.timed(loop)
    assert len(results) == frames, len(results)
    return {
        "rate": frames / seconds,
        "objects": sum(map(len, results)),
    }


def _gepipe(out: Path, frames: int, latency_s: float) -> dict[str, float]:
    from gepipe.pipeline.job import Job
    from gepipe.spec.load import load

    overrides = [f"inference.backend={_accelerator(latency_s)}"] if latency_s else []
    if latency_s:
        overrides.append(f"preprocess.batch_size={BATCH}")
    seconds, report = [], None
    for limit in (_SHORT, _SHORT, frames):  # the first starts what later ones find started
        target = out / f"{len(seconds)}.jsonl"
        job = Job(
            load(PIPELINE, overrides), inputs=[str(media.STREET)], output=str(target), limit=limit
        )
        begin = time.perf_counter()
        report = job.run()
        seconds.append(time.perf_counter() - begin)
    assert report is not None
    assert (report.total, report.failed) == (frames, 0), report
    assert report.statistics is not None
    records = [json.loads(line)["result"] for line in target.read_text().splitlines()]
    more = frames - _SHORT
    return {
        "rate": more / (seconds[2] - seconds[1]),
        "whole_rate": frames / seconds[2],
        "objects": sum(len(record["detections"]) for record in records),
        **{f"{role}_busy": s.utilisation for role, s in report.statistics.stages.items()},
    }


def _accelerator(latency_s: float) -> str:
    options = {
        "table": {BATCH: latency_s},
        "inputs": {"images": ["float32", 3, 416, 416]},
        "outputs": {"output0": ["float32", 84, 3549]},
        "recorded": media.answers_of_the_detector(),
    }
    return json.dumps({"latency_table": options})


def measure(rounds: int, frames: int = FRAMES, frames_on_cpu: int = FRAMES_ON_CPU) -> list[Figure]:
    """Measure all variants."""
    media.answers_of_the_detector()
    loops = [_BY_HAND, _EXPERT]
    harness.say(" the detector on the processors")
    real = harness.interleave(NAME, [_OURS, *loops, _ALL], rounds, frames=frames_on_cpu)
    objects = {run[0]["objects"] for run in real.values()}
    if max(objects) > 1.01 * min(objects):
        raise SystemExit(f"the variants differ in what they found: {objects} objects")
    harness.say(f" an accelerator of {1e3 * LATENCY_S:g} ms for {BATCH} frames")
    fast = harness.interleave(NAME, [_OURS, *loops], rounds, frames=frames, latency_s=LATENCY_S)

    def figure(
        runs: dict[str, list[dict[str, float]]], loop: str, what: str, goal: float | None = None
    ) -> Figure:
        details: dict[str, Any] = {
            **{name: harness.medians(run) for name, run in runs.items()},
            "lowest_highest": {name: harness.spread(run) for name, run in runs.items()},
        }
        return Figure(NAME, what, harness.ratio(runs[_OURS], runs[loop]), goal, True, details)

    return [
        figure(real, _BY_HAND, f"detect-video on the CPU / {_BY_HAND}", 1.0),
        figure(real, _EXPERT, f"… / {_EXPERT}"),
        figure(real, _ALL, f"… / {_ALL}"),
        figure(fast, _BY_HAND, f"detect-video, accelerator / {_BY_HAND}", 1.5),
        figure(fast, _EXPERT, f"… / {_EXPERT}"),
    ]
