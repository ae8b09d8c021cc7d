"""Jobs over videos with real decoders and workers: files, failures, going on, and what is said."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

import gepipe
from gepipe.errors import ConfigError, Interrupted, StageError
from gepipe.io.jsonl import JsonlSink
from gepipe.io.videos import VideoFiles
from gepipe.ops.decode import DecodeImage
from gepipe.ops.user import Python
from gepipe.pipeline.check import _check_source
from gepipe.pipeline.findings import Findings
from gepipe.pipeline.job import Job
from gepipe.spec.model import PipelineSpec
from gepipe.spec.units import FailureLimit
from tests.cameras import Camera
from tests.clips import clip, damage
from tests.support import (
    doubling_model,
    family_of,
    is_alive,
    python,
    script_environment,
    wait_until,
)

OPS = """
import os, signal, time
from pathlib import Path
import numpy as np
from tests.clips import number_in
here = Path(__file__).parent

def row(frame, meta):
    assert frame.shape == (meta["height"], meta["width"], 3)
    time.sleep(float((here / "slow").read_text()) if (here / "slow").exists() else 0)
    if meta["frame"] == 7 and (here / "die").exists():
        (here / "die").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return np.full(4, number_in(frame), np.float32)

def shown(outputs):
    return {"shown": int(outputs["y"][0] - 1) // 2}
"""


@pytest.fixture
def spec_of(tmp_path):
    (tmp_path / "ops.py").write_text(OPS)

    def spec_of(*paths, **options):
        return PipelineSpec(
            name="watch",
            source=VideoFiles(tuple(str(path) for path in paths), **options),
            stages=[
                {"name": "preprocess", "threads": 2, "batch_size": 4,
                 "ops": [DecodeImage("bgr"), Python(f"{tmp_path}/ops.py:row")]},
                {"name": "inference", "model": doubling_model(tmp_path / "m.onnx")},
                {"name": "postprocess", "stream_count": 1,
                 "ops": [Python(f"{tmp_path}/ops.py:shown")]},
            ],
            sink=JsonlSink(str(tmp_path / "out" / "r.jsonl")),
        )  # fmt: skip

    return spec_of


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def clips(tmp_path):
    return [clip(tmp_path / f"{n}.mp4", 30, first=100 * n) for n in range(3)]


def test_each_frame_has_its_result_and_each_broken_video_its_failure(spec_of, clips, tmp_path):
    empty = tmp_path / "empty.mp4"
    empty.touch()
    job = Job(spec_of(clips[0], empty, clips[2]))

    report = job.run()

    results = lines(report.output)
    assert [r["result"]["shown"] for r in results] == [*range(30), *range(200, 230)]
    assert [r["result"]["frame"] for r in results] == [*range(30)] * 2
    assert results[1]["result"]["time"] == pytest.approx(0.04)
    assert results[31]["source"] == f"{clips[2]}#frame=1"
    assert [r["index"] for r in results] == [*range(30), *range(31, 61)]
    (failure,) = lines(report.failures)
    assert (failure["index"], failure["source"]) == (30, str(empty))
    assert failure["kind"] == "empty"
    assert (report.total, report.failed, job.total, job.videos) == (61, 1, 61, 3)
    kept = json.loads((report.output.parent / "r.job.json").read_text())
    assert (kept["status"], kept["unit"], kept["items"]) == ("complete", "frame", 61)
    assert kept["inputs"]["count"] == 3


def test_colours_are_those_that_the_first_operator_asks_for(spec_of, tmp_path):
    spec = spec_of(clip(tmp_path / "a.mp4", 3))
    seen = {}
    for color in ("bgr", "rgb", "gray"):
        pre = [DecodeImage(color), Python(lambda picture: np.append(picture[5, 5], [0] * 3)[:4])]
        stages = [spec.pre.__class__(name="preprocess", batch_size=1, ops=[*pre, *_floats()])]
        pipeline = gepipe.Pipeline(spec.model_copy(update={"stages": (*stages, *spec.stages[1:])}))
        with pipeline:
            seen[color] = [result.value["shown"] for result in pipeline.run()]

    assert set(map(len, seen.values())) == {3}


def _floats():
    return [Python(lambda row: row.astype(np.float32))]


def test_a_job_that_was_stopped_goes_on_to_the_same_bytes(spec_of, clips, tmp_path):
    damage(clips[1], 0.3, 0.4)
    whole = Job(spec_of(*clips), output=str(tmp_path / "whole.jsonl"))
    whole.run()
    (tmp_path / "slow").write_text("0.1")  # so that it is stopped before its end
    job = Job(spec_of(*clips), output=str(tmp_path / "part.jsonl"))

    def stop():
        wait_until(lambda: job.done >= 21)
        job.request_stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(Interrupted):
        job.run()
    stopper.join()
    assert 21 <= job.done < 90

    (tmp_path / "slow").unlink()
    again = Job(spec_of(*clips), output=str(tmp_path / "part.jsonl"), resume=True)
    report = again.run()

    for ending in ("jsonl", "failures.jsonl"):
        part, all_of_it = tmp_path / f"part.{ending}", tmp_path / f"whole.{ending}"
        assert part.read_bytes() == all_of_it.read_bytes()
    assert f"going on at frame {job.done}" in report.notes
    assert report.statistics.stages["infer"].items < 90 - job.done + 5
    assert report.total == len(lines(tmp_path / "whole.jsonl")) + report.failed


def test_nothing_is_left_to_do_of_a_complete_job(spec_of, clips):
    first = Job(spec_of(*clips)).run()

    again = Job(spec_of(*clips), resume=True).run()

    assert again.statistics is None
    assert (again.total, again.failed) == (first.total, first.failed) == (90, 0)


def test_another_list_of_videos_is_refused(spec_of, clips):
    Job(spec_of(*clips), limit=20).run()

    with pytest.raises(ConfigError, match="3 inputs then, 2 now"):
        Job(spec_of(*clips[:2]), limit=20, resume=True).run()
    with pytest.raises(ConfigError, match="begun for the frames from 0 up to 20, not from 0 on"):
        Job(spec_of(*clips), resume=True).run()


def test_a_limit_counts_frames(spec_of, clips):
    report = Job(spec_of(*clips), limit=42).run()

    assert [r["result"]["shown"] for r in lines(report.output)] == [*range(30), *range(100, 112)]
    assert report.total == 42


def test_no_failure_is_allowed_where_the_file_says_so(spec_of, clips, tmp_path):
    spec = spec_of(clips[0], tmp_path / "missing.mp4", clips[1])

    with pytest.raises(StageError, match="no such file"):
        Job(spec.model_copy(update={"on_error": "fail"})).run()


def test_a_pipeline_in_python_goes_over_its_videos_and_over_others(spec_of, clips, tmp_path):
    with gepipe.Pipeline(spec_of(clips[0], every=10)) as pipeline:
        first = [(r.source, r.value) for r in pipeline.run()]
        others = [r.value["shown"] for r in pipeline.run([clips[1], tmp_path / "none.mp4"])]
        (failure,) = pipeline.failures
        left = pipeline.run()
        next(left)
        left.close()
    assert [value["shown"] for _, value in first] == [0, 10, 20]
    assert first[1] == (f"{clips[0]}#frame=10", {"frame": 10, "time": 0.4, "shown": 10})
    assert others == [100, 110, 120]
    assert failure.kind == "missing"


def test_pre_workers_that_end_lose_no_frame(spec_of, clips, tmp_path):
    (tmp_path / "die").touch()

    report = Job(spec_of(*clips)).run()

    assert not (tmp_path / "die").exists()
    assert report.failed == 0
    assert [r["result"]["shown"] for r in lines(report.output)] == [
        100 * n + frame for n in range(3) for frame in range(30)
    ]


SCRIPT = """
import sys
from gepipe.cli.app import main
main()
"""
YAML = """
pipeline:
  source: {{videos: {{paths: {paths}}}}}
  stages:
    - name: preprocess
      batch_size: 4
      ops: [decode_image: bgr, python: "ops.py:row"]
    - {{name: inference, model: {model}}}
    - name: postprocess
      ops: [python: "ops.py:shown"]
  sink: {out}
"""


def command(tmp_path, paths):
    (tmp_path / "run.py").write_text(SCRIPT)
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "p.yaml").write_text(
        YAML.format(
            paths=json.dumps([str(path) for path in paths]),
            model=doubling_model(tmp_path / "m.onnx"),
            out=tmp_path / "r.jsonl",
        )
    )
    return [*python(tmp_path / "run.py"), "run", str(tmp_path / "p.yaml")]


def test_the_command_tells_frames_and_videos_and_ends_with_3(clips, tmp_path):
    (tmp_path / "empty.mp4").touch()
    run = command(tmp_path, [*clips, tmp_path / "empty.mp4"])

    done = subprocess.run(
        run,
        check=False,
        capture_output=True,
        text=True,
        env=script_environment(),
        cwd=tmp_path,
        timeout=120,
    )
    summary = subprocess.run(
        [*run, "--json"], check=False, capture_output=True, text=True, env=script_environment(),
        cwd=tmp_path, timeout=120,
    )  # fmt: skip

    assert done.returncode == 3, done.stderr
    assert "90 frames of 4 videos with results" in done.stdout
    assert "empty.mp4' is an empty file" in done.stdout
    assert ": 4 videos" in done.stderr
    told = json.loads(summary.stdout)
    assert (told["items"], told["results"], told["failures"]) == (91, 90, 1)
    assert (told["videos"], told["dropped"]) == (4, 0)


def test_where_no_frame_is_taken_it_says_why(clips, tmp_path):
    run = [*command(tmp_path, clips[:1]), "--set", "source.videos.start=1h"]

    done = subprocess.run(
        run, check=False, capture_output=True, text=True, env=script_environment(), cwd=tmp_path,
        timeout=120,
    )  # fmt: skip

    assert done.returncode == 3, done.stderr
    assert "0 frames of 1 video with results" in done.stdout
    assert "start is 3600 s, but its last frame is at 1.16 s" in done.stdout


def test_the_plan_tells_of_decoders(clips, tmp_path):
    run = command(tmp_path, clips)
    run[run.index("run")] = "plan"

    done = subprocess.run(
        run, check=False, capture_output=True, text=True, env=script_environment(), cwd=tmp_path,
        timeout=120,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "decoders: a process for a video, one for the next, 1 thread each" in done.stdout


def test_an_interrupt_leaves_an_exact_prefix_and_says_how_to_go_on(clips, tmp_path):
    (tmp_path / "slow").write_text("0.1")
    run = command(tmp_path, clips)
    output = tmp_path / "r.jsonl"
    process = subprocess.Popen(
        run, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=script_environment(),
        cwd=tmp_path,
    )  # fmt: skip
    wait_until(lambda: output.exists() and output.read_text().count("\n") >= 12)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)

    assert process.returncode == 130
    results = lines(output)
    whole = [100 * n + frame for n in range(3) for frame in range(30)]
    assert [r["result"]["shown"] for r in results] == whole[: len(results)]
    assert f"{len(results)} frames done" in said
    assert "--resume" in said

    (tmp_path / "slow").unlink()
    again = subprocess.run(
        [*run, "--resume"], check=False, capture_output=True, text=True, env=script_environment(),
        cwd=tmp_path, timeout=120,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert [r["result"]["shown"] for r in lines(output)] == whole
    assert f"from frame {len(results)} on" in again.stderr


def test_a_run_that_is_killed_leaves_no_process_and_goes_on(clips, tmp_path):
    (tmp_path / "slow").write_text("0.1")
    run = command(tmp_path, clips)
    output = tmp_path / "r.jsonl"
    process = subprocess.Popen(run, env=script_environment(), cwd=tmp_path)
    wait_until(lambda: output.exists() and output.read_text().count("\n") >= 12)
    family = family_of(process.pid)
    assert len(family) >= 7, "workers and two decoders"

    process.kill()
    process.wait(60)

    wait_until(lambda: not any(map(is_alive, family)))
    (tmp_path / "slow").unlink()
    again = subprocess.run(
        [*run, "--resume"], check=False, env=script_environment(), cwd=tmp_path, timeout=120
    )
    assert again.returncode == 0
    assert [r["result"]["shown"] for r in lines(output)] == [
        100 * n + frame for n in range(3) for frame in range(30)
    ]


# --- live sources ---------------------------------------------------------------------------------


@pytest.fixture
def camera(tmp_path):
    path = clip(tmp_path / "camera.ts", 400, codec="mpeg2video", form="mpegts")
    camera = Camera(path, bytes_a_second=4 * path.stat().st_size * 25 / 400)
    yield camera
    camera.close()


def test_a_job_over_a_camera_ends_where_it_is_told_and_counts_what_it_drops(
    spec_of, camera, tmp_path
):
    # 100 frames a second come, and 2 workers take 20 ms each and more.
    (tmp_path / "slow").write_text("0.02")
    job = Job(spec_of(camera.address, stop="6s"))

    report = job.run()

    results = lines(report.output)
    frames = [r["result"]["frame"] for r in results]
    assert frames == sorted(set(frames))
    assert [r["index"] for r in results] == list(range(len(results)))
    assert report.failed == 0
    assert report.total == len(results)
    assert job.video_progress().dropped >= frames[-1] - len(frames) - 40
    assert results[-1]["result"]["time"] < 6
    with pytest.raises(ConfigError, match="no known end"):
        Job(spec_of(camera.address, stop="6s"), resume=True).run()


def test_a_stop_of_a_job_over_a_camera_leaves_whole_files(spec_of, camera):
    job = Job(spec_of(camera.address))

    def stop():
        wait_until(lambda: job.done >= 10)
        job.request_stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(Interrupted):
        job.run()
    stopper.join()

    assert len(lines(job.output)) == job.done >= 10


def test_a_share_of_frames_that_nobody_has_counted_is_refused_before_anything_runs(
    tmp_path, spec_of
):
    spec = spec_of(clip(tmp_path / "a.mp4", 10)).model_copy(
        update={"max_failures": FailureLimit(percent=1.0)}
    )
    found = Findings()

    with pytest.raises(ConfigError, match=r"set it to a number of items$"):
        Job(spec).run()
    _check_source(spec, (), found)

    assert [line for line in found.errors if "max_failures is 1.0%" in line]
    assert not (tmp_path / "out" / "r.jsonl").read_bytes()
