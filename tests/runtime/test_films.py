"""Whole jobs over videos into films and contact sheets: stopped, killed, resumed."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import cv2
import pytest

pytest.importorskip("av")

import av

from gepipe.errors import ConfigError, GepipeError, Interrupted
from gepipe.io.annotated import AnnotatedSink
from gepipe.io.coco import CocoSink
from gepipe.io.jsonl import JsonlSink
from gepipe.io.videos import VideoFiles
from gepipe.ops.decode import DecodeImage
from gepipe.ops.tracking import Track
from gepipe.ops.user import Python
from gepipe.pipeline.job import Job
from gepipe.spec.model import PipelineSpec
from gepipe.video.contact import ContactSheetSink
from gepipe.video.sink import VideoSink
from tests.clips import clip, number_in
from tests.support import doubling_model, family_of, pause, script_environment, wait_until

SIZE = (96, 132)


@pytest.fixture
def videos(tmp_path):
    times = [0.0, 0.04, 0.12, 0.2, 0.24]
    return (
        str(clip(tmp_path / "a.mp4", 30, SIZE)),
        str(
            clip(
                tmp_path / "b.mkv",
                5,
                (49, 131),
                codec="ffv1",
                pix_fmt="bgr0",
                times=times,
                first=50,
            )
        ),
        str(clip(tmp_path / "c.avi", 20, SIZE, first=100)),
    )


@pytest.fixture
def job(tmp_path, videos):
    """Return a function that makes a job over the videos."""
    model = doubling_model(tmp_path / "m.onnx")

    def make(sink, *, resume=False, track=False, source=None, limit=None, **args):
        post = [Python("tests.filmstages:found", args), *([Track()] if track else [])]
        spec = PipelineSpec(
            name="films",
            source=VideoFiles(videos) if source is None else source,
            sink=sink,
            stages=[
                {
                    "name": "pre",
                    "threads": 2,
                    "batch_size": 4,
                    "ops": [DecodeImage(), Python("tests.filmstages:shown")],
                },
                {"name": "infer", "model": model},
                {"name": "post", "stream_count": 2, "ops": post},
            ],
        )
        return Job(spec, resume=resume, limit=limit)

    return make


def lines_of(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def film_of(path):
    """Return the numbers that the frames of a film show, and their times."""
    with av.open(str(path)) as container:
        frames = [
            (number_in(frame.to_ndarray(format="bgr24")[:64]), round(float(frame.time), 3))
            for frame in container.decode(video=0)
        ]
    return [number for number, _ in frames], [time for _, time in frames]


def run_until(job, count):
    """Run a job in a thread until it has written `count` outcomes; return thread and error."""
    errors = []

    def run():
        try:
            job.run()
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: job.done >= count or errors)
    return thread, errors


@pytest.fixture
def gate(tmp_path):
    """A file without which the last frames are not done."""
    return tmp_path / "gate"


def stopped(job, count, gate):
    """Run a job and stop it after `count` outcomes."""
    thread, errors = run_until(job, count)
    job.request_stop()
    gate.touch()
    thread.join(60)
    assert not thread.is_alive()
    (error,) = errors
    assert isinstance(error, Interrupted)


def encoder_of(job):
    return job._outputs._results._process._child.process.pid


def test_each_video_becomes_a_film_of_all_its_frames(tmp_path, job, videos):
    sink = VideoSink(str(tmp_path / "out.jsonl"), crf=12)

    report = job(sink, bad=(3, 104)).run()

    assert (report.total, report.failed) == (55, 2)
    numbers, times = film_of(tmp_path / "out" / "000-a.mp4")
    assert numbers == list(range(30))  # also the one that failed
    assert times == [round(n / 25, 3) for n in range(30)]
    assert film_of(tmp_path / "out" / "001-b.mp4") == (
        list(range(50, 55)),
        [0.0, 0.04, 0.12, 0.2, 0.24],
    )
    assert film_of(tmp_path / "out" / "002-c.mp4")[0] == list(range(100, 120))
    lines = lines_of(sink.path)
    for number, path in enumerate(videos):
        of_video = [line for line in lines if line["source"].startswith(path)]
        frames = [line["result"]["frame"] for line in of_video]
        assert frames == sorted(set(frames))
        assert {line["film"] for line in of_video} == {f"{number:03}-{Path(path).stem}.mp4"}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "000-a.mp4",
        "001-b.mp4",
        "002-c.mp4",
    ]


def test_results_are_drawn_and_failed_frames_are_not(tmp_path, job):
    job(VideoSink(str(tmp_path / "out.jsonl"), crf=8), limit=8, bad=(3,)).run()

    with av.open(str(tmp_path / "out" / "000-a.mp4")) as container:
        frames = [
            frame.to_ndarray(format="bgr24").astype(int) for frame in container.decode(video=0)
        ]
    upper = [frame[: SIZE[0] * 3 // 4] for frame in frames]  # the rest is coloured anyhow
    coloured = [bool((part.max(axis=2) - part.min(axis=2) > 80).any()) for part in upper]
    assert coloured == [True, True, True, False, True, True, True, True]


def test_frames_may_be_pictures_of_their_own_and_images_of_coco(tmp_path, job, videos):
    drawn = AnnotatedSink(str(tmp_path / "drawn.jsonl"), format="png")
    coco = CocoSink(str(tmp_path / "found.json"))

    job(drawn, bad=(53,)).run()
    job(coco, bad=(53,), track=True).run()

    pictures = sorted(path.name for path in drawn.drawn.path.iterdir())
    assert len(pictures) == 54
    assert pictures[29:32] == ["000029-a-29.png", "000030-b-0.png", "000031-b-1.png"]
    assert number_in(cv2.imread(str(drawn.drawn.path / "000031-b-1.png"))) == 51
    made = json.loads((tmp_path / "found.json").read_text())
    assert len(made["images"]) == 54
    image = made["images"][32]
    assert image["file_name"] == f"{videos[1]}#frame=2"
    assert (image["frame"], image["width"], image["height"]) == (2, 131, 49)
    assert image["time"] == pytest.approx(0.12)
    assert {each["track_id"] for each in made["annotations"]} == {1}


@pytest.mark.parametrize("kind", [VideoSink, ContactSheetSink])
def test_a_stopped_run_that_is_resumed_equals_one_that_was_not(tmp_path, job, gate, kind):
    whole, parts = kind(str(tmp_path / "whole.jsonl")), kind(str(tmp_path / "parts.jsonl"))
    job(whole, bad=(104,)).run()

    stopped(job(parts, bad=(104,), gate=str(gate)), 38, gate)
    assert lines_of(parts.path) == lines_of(whole.path)[: len(lines_of(parts.path))]
    made = {path.name for path in (tmp_path / "parts").iterdir()}
    assert {name.split(".")[0] for name in made} <= {"000-a", "001-b"}
    assert any(name.startswith("000-a") for name in made)
    again = job(parts, resume=True, bad=(104,), gate=str(gate))
    again.run()

    assert again.first >= 30  # not from the very beginning
    assert Path(parts.path).read_bytes() == Path(whole.path).read_bytes()
    for path in (tmp_path / "whole").iterdir():
        other = tmp_path / "parts" / path.name
        if kind is VideoSink:
            assert film_of(other) == film_of(path)
        else:
            assert other.read_bytes() == path.read_bytes()


def test_films_go_on_at_the_first_frame_of_a_video_also_where_it_failed(tmp_path, job, gate):
    sink = VideoSink(str(tmp_path / "out.jsonl"), crf=12)

    stopped(job(sink, bad=(100, 101, 102), gate=str(gate)), 40, gate)
    again = job(sink, resume=True, bad=(100, 101, 102), gate=str(gate))
    again.run()

    assert again.first == 35
    assert film_of(tmp_path / "out" / "002-c.mp4")[0] == list(range(100, 120))


def test_tracks_are_the_same_in_a_run_that_was_resumed(tmp_path, job, gate):
    whole, parts = JsonlSink(str(tmp_path / "w.jsonl")), JsonlSink(str(tmp_path / "p.jsonl"))
    job(whole, track=True, bad=(7,)).run()

    stopped(job(parts, track=True, bad=(7,), gate=str(gate)), 42, gate)
    again = job(parts, track=True, resume=True, bad=(7,), gate=str(gate))
    again.run()

    assert again.first == 35  # the first frame of the video that it was at
    assert Path(parts.path).read_bytes() == Path(whole.path).read_bytes()
    last = lines_of(whole.path)[29 - 1]["result"]
    assert last["detections"][0]["track"] == 1
    assert last["counts"] == {"a": 1}


def test_tracks_go_on_with_new_numbers_behind_a_worker_that_died(tmp_path, job):
    sink = JsonlSink(str(tmp_path / "out.jsonl"))

    report = job(sink, track=True, fatal=10).run()

    assert (report.total, report.failed) == (55, 1)
    results = [line["result"] for line in lines_of(sink.path)]
    tracks = [(each["detections"][0]["track"], each.get("counted_from")) for each in results]
    assert tracks[:10] == [(1, None)] * 10
    assert tracks[10:29] == [(11001, 11)] * 19  # a number that none had, in the rest of that video
    assert tracks[29:] == [(1, None)] * 25
    assert results[28]["counts"] == {"b": 1}


def test_a_killed_encoder_ends_the_run_and_resume_mends_it(tmp_path, job, gate):
    sink = VideoSink(str(tmp_path / "out.jsonl"), crf=12)
    first = job(sink, gate=str(gate))
    thread, errors = run_until(first, 10)

    os.kill(encoder_of(first), signal.SIGKILL)
    gate.touch()
    thread.join(60)

    assert not thread.is_alive()
    (error,) = errors
    assert type(error) is GepipeError
    assert "encoder process was lost (killed by SIGKILL" in str(error)
    lines = lines_of(sink.path)
    assert [line["index"] for line in lines] == list(range(len(lines)))
    assert not list(tmp_path.glob("out/*"))
    job(sink, resume=True, gate=str(gate)).run()
    assert film_of(tmp_path / "out" / "000-a.mp4")[0] == list(range(30))
    assert len(lines_of(sink.path)) == 55


def test_a_killed_encoder_ends_a_run_that_waits_for_memory(tmp_path, job):
    source = VideoFiles(str(clip(tmp_path / "d.mp4", 200, SIZE)), memory=20 * 96 * 132 * 3)
    subject = job(VideoSink(str(tmp_path / "out.jsonl")), source=source, slow=0.05)
    thread, errors = run_until(subject, 0)
    pid = wait_until(
        lambda: subject._outputs and subject._outputs._results._process and encoder_of(subject)
    )

    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: subject.done >= 8)
    done = subject.done
    pause(0.5)
    assert subject.done - done <= 20  # it stands still: there is no memory left
    os.kill(pid, signal.SIGKILL)
    thread.join(60)

    assert not thread.is_alive()
    assert "encoder process was lost (killed by SIGKILL" in str(errors[0])


@pytest.mark.parametrize("kind", [VideoSink, ContactSheetSink])
def test_one_request_ends_a_run_whose_last_process_stands_still(
    tmp_path, job, gate, monkeypatch, kind
):
    monkeypatch.setattr("gepipe.video.sinkprocess._GRACE_S", 0.5)
    sink = kind(str(tmp_path / "out.jsonl"))
    subject = job(sink, gate=str(gate))
    thread, errors = run_until(subject, 2)
    os.kill(encoder_of(subject), signal.SIGSTOP)
    gate.touch()
    wait_until(lambda: subject.done == 55)
    pause(0.7)
    assert thread.is_alive()  # nobody asked it to stop, and the process may go on

    subject.request_stop()
    thread.join(60)

    assert not thread.is_alive()
    assert type(errors[0]) is Interrupted
    job(sink, resume=True, gate=str(gate)).run()
    assert len(lines_of(sink.path)) == 55


def test_a_full_disk_ends_the_run_with_its_reason(tmp_path, job, gate):
    sink = VideoSink(str(tmp_path / "out.jsonl"), crf=0)
    subject = job(sink, gate=str(gate))
    thread, errors = run_until(subject, 2)

    resource.prlimit(encoder_of(subject), resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    gate.touch()
    thread.join(60)

    assert "cannot write" in str(errors[0])
    assert "file too large" in str(errors[0])
    assert not list(tmp_path.glob("out/*"))
    lines = lines_of(sink.path)
    assert [line["index"] for line in lines] == list(range(len(lines)))


def test_pictures_are_refused_and_what_was_there_stays(tmp_path, job):
    (tmp_path / "out.jsonl").write_text("of before\n")
    subject = job(VideoSink(str(tmp_path / "out.jsonl")), source=str(tmp_path))
    (tmp_path / "p.jpg").write_bytes(b"x")

    with pytest.raises(ConfigError, match="sink: video makes films of videos, and the source im"):
        subject.run()

    assert (tmp_path / "out.jsonl").read_text() == "of before\n"


COMMAND = [sys.executable, "-c", "from gepipe.cli.app import main; main()", "run", "p.yaml"]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_signal_leaves_whole_films_and_no_process(tmp_path, videos, gate, number, status):
    doubling_model(tmp_path / "m.onnx")
    (tmp_path / "p.yaml").write_text(
        f"""
pipeline:
  source: {{videos: [{", ".join(videos)}]}}
  stages:
    - name: pre
      batch_size: 4
      ops: [decode_image, python: "tests.filmstages:shown"]
    - {{name: infer, model: m.onnx}}
    - name: post
      ops: [{{python: {{function: "tests.filmstages:found", args: {{gate: {gate}}}}}}}]
  sink: {{video: out.jsonl}}
"""
    )
    process = subprocess.Popen(
        COMMAND,
        cwd=tmp_path,
        env=script_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        lines = tmp_path / "out.jsonl"
        wait_until(lambda: lines.exists() and lines.read_bytes().count(b"\n") > 38)
        family = family_of(process.pid)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        output, _ = process.communicate(timeout=120)
    finally:
        gate.touch()
        if process.poll() is None:
            process.kill()
            process.communicate()

    assert process.returncode == status, output
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family))
    films = {path.name for path in (tmp_path / "out").glob("*.mp4")}
    assert "000-a.mp4" in films
    assert films <= {"000-a.mp4", "001-b.mp4"}
    assert film_of(tmp_path / "out" / "000-a.mp4")[0] == list(range(30))
    done = subprocess.run(
        [*COMMAND, "--resume"], cwd=tmp_path, env=script_environment(), capture_output=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert film_of(tmp_path / "out" / "002-c.mp4")[0] == list(range(100, 120))
    assert len(list((tmp_path / "out").iterdir())) == 3  # what the killed one left is gone, too
