import io
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gepipe.cli import progress as module
from gepipe.cli.progress import Progress
from gepipe.runtime.statistics import StageStatistics, Statistics
from gepipe.video.progress import VideoProgress
from tests.support import wait_until


def stage(role, name, utilisation):
    return StageStatistics(role, name, 1, 1, 10, 1.0, utilisation, 0, 0)


STATISTICS = Statistics(
    total=1000,
    done=90,
    failed=10,
    elapsed_s=2.0,
    stages={"pre": stage("pre", "preprocess", 0.4), "infer": stage("infer", "inference", 0.97)},
    slots_used=(1, 1),
    slots=(2,),
    slot_nbytes=100,
)


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: now.s)
    return now


def job_of(**facts):
    known = {
        "total": 1000,
        "done": 0,
        "statistics": lambda: STATISTICS,
        "video_progress": lambda: None,
    } | facts
    return SimpleNamespace(**known)


def test_there_is_no_line_before_the_workers_are_ready():
    assert Progress(job_of(statistics=lambda: None)).line() is None
    unready = replace(STATISTICS, elapsed_s=0.0)
    assert Progress(job_of(statistics=lambda: unready)).line() is None


def videos(**facts):
    """How far a job over videos is."""
    known = VideoProgress(
        begun=3, videos=200, source="in/clip.mp4", frames=120, estimate=750, dropped=0
    )
    return lambda: replace(known, **facts)


def test_of_videos_the_line_says_which_and_how_far_in_it(clock):
    job = job_of(total=None, done=1000, video_progress=videos())
    progress = Progress(job)
    progress.line()
    clock.s, job.done = 102.0, 1100

    line = progress.line()

    assert line == (
        "video 3/200, clip.mp4: frame 120 of about 750 · 1,100 frames done · 50.0 frames/s · "
        "10 failures · inference is slowest, busy 97%"
    )


@pytest.mark.parametrize("estimate", [0, 119])
def test_an_estimate_that_is_wrong_already_is_not_told(estimate):
    job = job_of(total=None, video_progress=videos(estimate=estimate, dropped=7))

    line = Progress(job).line()

    assert "clip.mp4: frame 120 · 0 frames done" in line
    assert "7 dropped" in line


def test_the_line_says_how_far_how_fast_how_long_and_who_is_slow(clock):
    job = job_of(done=0)
    progress = Progress(job)
    progress.line()
    clock.s, job.done = 102.0, 100

    line = progress.line()

    assert line == (
        "100/1,000 (10%) · 50.0 items/s · 18 s left · 10 failures · inference is slowest, busy 97%"
    )


def test_a_resumed_run_is_reckoned_from_where_it_goes_on(clock):
    job = job_of(done=800)
    progress = Progress(job)
    progress.line()
    clock.s, job.done = 102.0, 900

    line = progress.line()

    assert line.startswith("900/1,000 (90%) · 50.0 items/s · 2 s left")


def test_in_a_pipe_there_is_a_plain_line_now_and_then(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(module, "_LINE_S", 0.01)

    with Progress(job_of(done=500)) as progress:
        wait_until(lambda: stream.getvalue().count("\n") >= 3)
        progress.say("warning: something")

    first, *_ = stream.getvalue().splitlines()
    assert first == "500/1,000 (50%) · 10 failures · inference is slowest, busy 97%"
    assert "\nwarning: something\n" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_a_short_run_in_a_pipe_has_no_lines(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)

    with Progress(job_of(done=500)):
        pass

    assert stream.getvalue() == ""
