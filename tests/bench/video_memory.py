"""Memory of all processes, decoders and the encoder of films included, over 200 short videos."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import harness
import media
from harness import Figure
from memory_growth import memory_kib

if TYPE_CHECKING:
    from gepipe.pipeline.job import Job

NAME = "video_memory"
VIDEOS = 200
_FIRST, _SPAN = 50, 30  # what the median is taken over, and again at the end
_LOOK_S = 0.05
_NOISE_KIB = 4096  # of all processes together, of some 400 MiB
_PIPELINE = """
source: {{videos: {folder}}}
stages:
  - name: preprocess
    batch_size: 8
    ops:
      - decode_image: {{color: bgr}}
      - letterbox: {{size: 224}}
      - normalize: {{scale: 1/255}}
      - to_tensor: nchw
  - name: inference
    backend: {{latency_table: {{table: {{8: 1ms}}, outputs: {{y: [float32, 8, 6]}}}}}}
  - {{name: postprocess, ops: [yolo: {{layout: end2end, confidence: 0.5}}]}}
sink: {{video: {folder}/out.jsonl}}
"""


def trial(variant: str, videos: int = VIDEOS) -> dict[str, float]:
    """Run the videos through all stages into films, and look at the memory on the way."""
    from gepipe.pipeline.job import Job
    from gepipe.spec.load import loads

    assert variant == "job"
    clips = media.clips()
    looks: list[tuple[int, int, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            loads(_PIPELINE.format(folder=folder)),
            inputs=[clips[number % len(clips)] for number in range(videos)],
            output=str(Path(folder, "out.jsonl")),
        )
        ended = threading.Event()
        watch = threading.Thread(target=_watch, args=(job, ended, looks))
        watch.start()
        report = job.run()
        ended.set()
        watch.join()
        assert not report.failed, report
        films = len(list(Path(folder, "out").iterdir()))
        assert films == videos, films
    first = _middle(looks, _FIRST, _FIRST + _SPAN)
    last = _middle(looks, videos - _SPAN, videos)
    return {
        "rss_kib_first": first[0],
        "rss_kib_last": last[0],
        "pss_kib_first": first[1],
        "pss_kib_last": last[1],
        "growth_kib": last[1] - first[1],
        "looks": len(looks),
        "frames": report.total,
    }


def _watch(job: Job, ended: threading.Event, looks: list[tuple[int, int, int]]) -> None:
    """Look at the memory again and again: videos begun, RSS and PSS in KiB."""
    while not ended.wait(_LOOK_S):
        if (progress := job.video_progress()) is not None:
            memory = memory_kib()
            looks.append((progress.begun, memory["Rss"], memory["Pss"]))


def _middle(looks: list[tuple[int, int, int]], low: int, high: int) -> tuple[float, float]:
    chosen = [look for look in looks if low <= look[0] < high]
    return median(look[1] for look in chosen), median(look[2] for look in chosen)


def measure(rounds: int, videos: int = VIDEOS) -> list[Figure]:
    """Measure the growth."""
    media.clips()
    results = harness.interleave(NAME, ["job"], rounds, videos=videos)["job"]
    middle = harness.medians(results)
    details = {**middle, "videos": videos, "lowest_highest": harness.spread(results, "growth_kib")}
    noise = _NOISE_KIB / 1024
    what = f"memory growth from {_FIRST} to {videos} videos, MiB (noise: {noise:g})"
    return [Figure(NAME, what, middle["growth_kib"] / 1024, noise, False, details)]
