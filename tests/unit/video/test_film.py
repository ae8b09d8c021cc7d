"""One MP4: encoders other than the best, and what cannot be written."""

from __future__ import annotations

import av
import numpy as np
import pytest

from gepipe.errors import GepipeError
from gepipe.video import film as films
from gepipe.video.film import Film, Quality, chosen_encoder


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(films, "_warned", set())
    return tmp_path


def film_of(place, encoder="libx264", crf=23):
    return Film(place / "out.mp4", "part", Quality(crf, "veryfast"), encoder)


def test_the_best_encoder_that_there_is_is_chosen():
    assert chosen_encoder() == "libx264"
    assert chosen_encoder(("none_such", "mpeg4")) == "mpeg4"
    with pytest.raises(GepipeError, match="has no encoder for MP4; expected one of none_such; "):
        chosen_encoder(("none_such",))


def test_without_libx264_the_film_plays_and_a_word_is_said(place, caplog):
    film = film_of(place, "mpeg4")
    times = [3.0, 3.04, 3.5, 3.6]
    for number, time in enumerate(times):
        film.add(np.full((48, 63, 3), 50 * number, np.uint8), time)
    film.finish()

    with av.open("out.mp4") as container:
        stream = container.streams.video[0]
        shown = [
            (round(float(frame.time), 3), int(frame.to_ndarray(format="gray")[20, 20]))
            for frame in container.decode(stream)
        ]
        size = (stream.width, stream.height)
    assert [time for time, _ in shown] == [0.0, 0.04, 0.5, 0.6]
    assert all(abs(grey - 50 * number) < 6 for number, (_, grey) in enumerate(shown))
    assert size == (64, 48)
    (said,) = caplog.messages
    assert said.startswith("this PyAV has no libx264; films are encoded by mpeg4: players show it")


def test_the_colours_are_those_of_the_picture(place):
    film = film_of(place, crf=1)
    colours = [(0, 0, 255), (0, 255, 0), (255, 0, 0), (40, 200, 90), (255, 255, 255)]
    for number, colour in enumerate(colours):
        film.add(np.full((32, 32, 3), colour, np.uint8), number / 25)
    film.finish()

    with av.open("out.mp4") as container:
        for frame, colour in zip(container.decode(video=0), colours, strict=True):
            shown = frame.to_ndarray(format="bgr24")[16, 16].astype(int)
            assert abs(shown - colour).max() <= 4


def test_times_that_stand_still_or_go_back_are_made_to_rise(place):
    film = film_of(place)
    for time in (0.0, 0.04, 0.04, 0.02, 0.12):
        film.add(np.zeros((32, 32, 3), np.uint8), time)
    film.finish()

    with av.open("out.mp4") as container:
        times = [float(frame.time) for frame in container.decode(video=0)]
    assert times == sorted(set(times))
    assert times[-1] == pytest.approx(0.12)


def test_a_frame_that_no_encoder_takes_is_told_and_leaves_nothing(place, monkeypatch):
    monkeypatch.setattr(films, "_SIDE_MAX", 20_000)
    film = film_of(place)

    with pytest.raises(GepipeError, match=r"\(20000x2, libx264\): .*; run again with --resume"):
        film.add(np.zeros((2, 20000, 3), np.uint8), 0.0)

    film.drop()
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(("size", "made"), [((9, 20_001), (8, 16_384)), ((16_385, 2), (16_384, 2))])
def test_a_frame_larger_than_any_encoder_takes_is_made_smaller(place, size, made):
    film = film_of(place)
    for _ in range(2):
        film.add(np.full((*size, 3), 90, np.uint8), 0.0)
    film.finish()

    with av.open("out.mp4") as container:
        pictures = [frame.to_ndarray(format="gray") for frame in container.decode(video=0)]
    assert [picture.shape for picture in pictures] == [made] * 2


def test_a_film_that_lacks_frames_is_not_called_whole(place, monkeypatch):
    film = film_of(place)
    for number in range(3):
        film.add(np.zeros((32, 32, 3), np.uint8), number / 25)
    monkeypatch.setattr(film, "_count", 4)

    with pytest.raises(GepipeError, match="it holds 3 of 4 frames; run again with --resume"):
        film.finish()

    film.drop()
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("times", "shown"),
    [
        # Longer than MP4 can say of a frame; a time stamp of a damaged file.
        ([0.0, 0.04, 100_000.0, 100_000.04], [0.0, 0.04, 21_600.04, 21_600.08]),
        ([0.0, 0.04, 1e11, 1e11 + 1], [0.0, 0.04, 21_600.04, 21_601.04]),
        # Recordings one behind the other, and a wrong time stamp among right ones.
        ([7.0, 7.04, 0.0, 0.04], [0.0, 0.04, 0.08, 0.12]),
        ([0.0, 0.04, 3600.0, 0.12, 0.16], [0.0, 0.04, 3600.0, 3600.04, 3600.08]),
        ([0.0, 0.08, 0.04, 0.12], [0.0, 0.08, 0.08, 0.12]),
    ],
)
def test_times_that_no_film_can_have_cost_no_picture(place, times, shown):
    film = film_of(place)
    for number, time in enumerate(times):
        film.add(np.full((32, 32, 3), 40 * number, np.uint8), time)
    film.finish()

    with av.open("out.mp4") as container:
        seen = [float(frame.time) for frame in container.decode(video=0)]
    assert seen == pytest.approx(shown, abs=0.001)
