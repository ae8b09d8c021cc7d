"""Frames a second through the decoders and a pipeline that does nothing, against PyAV alone.

PyAV alone is a loop that decodes and makes BGR arrays, as its documentation shows it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import harness
import media
from harness import Figure

NAME = "video_decode"
TIMES = 6  # the video, one after another: 4,770 frames
_ALONE, _THREADS, _OURS = "PyAV", "PyAV, threads of its own", "gepipe"
_PIPELINE = """
source: {{videos: {video}}}
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


def trial(variant: str, times: int = TIMES) -> dict[str, float]:
    """Measure one variant, from the first frame on."""
    if variant == _OURS:
        return _gepipe(times)
    return _alone(times, "AUTO" if variant == _THREADS else None)


def _alone(times: int, threads: str | None) -> dict[str, float]:
    import av

    def decode() -> int:
        count = 0
        with av.open(str(media.STREET)) as container:
            stream = container.streams.video[0]
            if threads is not None:
                stream.thread_type = threads
            for frame in container.decode(stream):
                count += len(frame.to_ndarray(format="bgr24")) > 0
        return count

    decode()
    begin, cpu = time.perf_counter(), time.process_time()
    frames = sum(decode() for _ in range(times))
    seconds = time.perf_counter() - begin
    return {
        "rate": frames / seconds,
        "cpu_ms": 1e3 * (time.process_time() - cpu) / frames,
        "frames": frames,
    }


def _gepipe(times: int) -> dict[str, float]:
    from gepipe.pipeline.job import Job
    from gepipe.spec.load import loads

    seconds, frames = [], []
    with tempfile.TemporaryDirectory() as folder:
        spec = loads(_PIPELINE.format(video=media.STREET, folder=folder))
        for number in (1, 1, 1 + times):  # the first starts what later ones find started
            output = str(Path(folder, f"{len(seconds)}.jsonl"))
            job = Job(spec, inputs=[str(media.STREET)] * number, output=output)
            begin = time.perf_counter()
            report = job.run()
            seconds.append(time.perf_counter() - begin)
            frames.append(report.total)
            assert not report.failed, report
    assert report.statistics is not None
    return {
        "rate": (frames[2] - frames[1]) / (seconds[2] - seconds[1]),
        "frames": frames[2] - frames[1],
        **{f"{role}_busy": s.utilisation for role, s in report.statistics.stages.items()},
    }


def measure(rounds: int, times: int = TIMES) -> list[Figure]:
    """Measure all variants."""
    runs = harness.interleave(NAME, [_ALONE, _THREADS, _OURS], rounds, times=times)
    details = {
        **{name: harness.medians(run) for name, run in runs.items()},
        "lowest_highest": {name: harness.spread(run) for name, run in runs.items()},
    }
    what = "frames decoded into a pipeline / by PyAV alone"
    return [
        Figure(NAME, what, harness.ratio(runs[_OURS], runs[_ALONE]), 0.9, True, details),
        Figure(NAME, f"… / {_THREADS}", harness.ratio(runs[_OURS], runs[_THREADS])),
    ]
