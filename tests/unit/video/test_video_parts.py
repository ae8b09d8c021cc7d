"""What videos are made of without a decoder: selection, accounts of damage and crashes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gepipe.video.damage import Damage
from gepipe.video.selection import Selection
from gepipe.video.videostate import CRASHES_MAX, VideoState


@given(
    st.floats(0.5, 120), st.floats(0.5, 60), st.integers(0, 400), st.floats(0, 5), st.floats(0, 5)
)
def test_so_many_frames_a_second_and_no_more(rate, fps, frames, start, length):
    selection = Selection(fps=fps, start_s=start, stop_s=start + length)

    taken = [n / rate for n in range(frames) if selection.takes(n / rate)]

    inside = [n / rate for n in range(frames) if start <= n / rate < start + length]
    if not inside:
        assert not taken
        return
    seconds = inside[-1] - start
    assert len(taken) <= math.ceil(seconds * fps + 0.05) + 1
    # A frame is missed only where none came in its time.
    assert len(taken) >= min(len(inside), math.floor(seconds * min(fps, rate * 0.999)) - 1)


@pytest.mark.parametrize("start", [0.0, 0.2, 0.20703125, 0.21, 0.39])
def test_the_rate_of_the_video_takes_every_frame_wherever_it_begins(start):
    selection = Selection(fps=5, start_s=start)

    assert all(selection.takes(n / 5) for n in range(2, 100))


def test_a_rate_above_that_of_the_video_takes_every_frame():
    selection = Selection(fps=60)

    assert all(selection.takes(round(n / 30, 3)) for n in range(300))


@pytest.mark.parametrize("rate", [24000 / 1001, 25, 30000 / 1001, 50, 59.94])
def test_time_stamps_in_milliseconds_do_not_shift_a_selection(rate):
    exact, rounded = Selection(fps=5), Selection(fps=5)
    times = [n / rate for n in range(1000)]

    assert [exact.takes(t) for t in times].count(True) == pytest.approx(1000 / rate * 5, abs=2)
    assert [rounded.takes(round(t, 3)) for t in times].count(True) == pytest.approx(
        1000 / rate * 5, abs=2
    )


@pytest.mark.parametrize(
    ("selection", "frames", "rate", "about"),
    [
        (Selection(), 250, 25, 250),
        (Selection(every=5), 251, 25, 51),
        (Selection(fps=2), 250, 25, 20),
        (Selection(fps=100), 250, 25, 250),
        (Selection(start_s=4, stop_s=6), 250, 25, 50),
        (Selection(start_s=40), 250, 25, 0),
        (Selection(), 0, 25, 0),
        (Selection(), 250, 0, 250),
    ],
)
def test_an_estimate_knows_the_selection(selection, frames, rate, about):
    assert selection.estimate(frames, rate) == about


def test_damage_is_told_in_one_sentence_however_much_there_is():
    damage = Damage()
    assert damage.text(10) == ""
    for number in range(1000):
        damage.leave_out(number, number / 10, "bad bits")
    damage.mend(1000, 100.0, "concealing 3 errors")

    text = damage.text(2000)

    assert text == (
        "2,000 frames decoded; 1,000 damaged pieces left out, 1 frame with parts filled in; at "
        "frames 0 (0.00 s), 1 (0.10 s), 2 (0.20 s), 3 (0.30 s), 4 (0.40 s), …: bad bits"
    )


def test_a_decoder_that_gets_further_each_time_is_replaced_so_many_times():
    video = VideoState(0, "a.mp4", b"a.mp4")

    for number in range(CRASHES_MAX - 1):
        video.behind = number
        assert video.crash("killed by SIGSEGV")
    video.behind = 100

    assert not video.crash("killed by SIGSEGV")
    assert video.trouble is not None
    assert f"ended {CRASHES_MAX} times, lastly behind frame 100" in video.trouble[1]


def test_a_decoder_that_went_with_the_fork_server_tells_nothing_of_its_video():
    video = VideoState(0, "a.mp4", b"a.mp4")

    assert video.crash("lost", blamed=False)
    assert video.crash("lost", blamed=False)
    assert video.crash("killed by SIGSEGV")
    assert video.crash("lost", blamed=False)

    assert not video.crash("killed by SIGSEGV")
