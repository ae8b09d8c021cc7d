"""What is not needed is not decoded, and nothing else changes: frames, numbers and times."""

from __future__ import annotations

import hashlib
import random
from contextlib import closing
from fractions import Fraction

import av
import numpy as np
import pytest

from gepipe.video.selection import Selection
from gepipe.video.stream import VideoStream
from tests.clips import clip, damage, watch

_X265 = {"x265-params": "log-level=none"}
#: Name of the file, codec and what else of it.
KINDS = {
    "h264": ("a.mp4", "libx264", {}),
    "h264-open": ("a.mkv", "libx264", {"options": {"x264-params": "open-gop=1:b-pyramid=2"}}),
    "h264-refresh": ("a.mp4", "libx264", {"options": {"x264-params": "intra-refresh=1"}}),
    "h264-slices": ("a.mov", "libx264", {"options": {"x264-params": "slices=4"}}),
    "h264-10bit": ("a.mp4", "libx264", {"pix_fmt": "yuv420p10le"}),
    "h264-interlaced": ("a.mp4", "libx264", {"options": {"x264-params": "interlaced=1"}}),
    "h264-ts": ("a.ts", "libx264", {}),
    "h264-pyramid": ("a.mp4", "libx264", {"options": {"x264-params": "bframes=8:b-pyramid=2"}}),
    "h264-avi": ("a.avi", "libx264", {"options": {"x264-params": "bframes=3"}}),
    "h264-flv": ("a.flv", "libx264", {}),
    "h264-variable": ("a.mp4", "libx264", {"variable": True}),
    "h264-negative": ("a.mkv", "libx264", {"shift": -400}),
    "h264-fragments": ("a.mp4", "libx264", {"container": {"movflags": "frag_keyframe+empty_moov"}}),
    "h265-open": ("a.mp4", "libx265", {"options": _X265}),
    "h265-ts": ("a.ts", "libx265", {"options": _X265}),
    "h265-variable": ("a.mkv", "libx265", {"options": _X265, "variable": True}),
    "mpeg4": ("a.avi", "mpeg4", {}),
    "mpeg4-between": ("b.avi", "mpeg4", {"between": 2}),
    "mpeg4-ts": ("a.ts", "mpeg4", {"between": 3}),
    "mpeg4-mp4": ("a.mp4", "mpeg4", {"between": 3}),
    "mpeg2": ("a.ts", "mpeg2video", {"between": 2}),
    "mpeg2-mpg": ("a.mpg", "mpeg2video", {"between": 2}),
    "mpeg1": ("a.mpg", "mpeg1video", {"between": 2}),
    "vp8": ("a.webm", "libvpx", {"options": {"auto-alt-ref": "1", "lag-in-frames": "25"}}),
    "vp9": (
        "a.webm",
        "libvpx-vp9",
        {"options": {"auto-alt-ref": "1", "lag-in-frames": "25", "cpu-used": "6"}},
    ),
    "av1": ("a.mkv", "libsvtav1", {"options": {"preset": "12"}}),
    "mjpeg": ("a.avi", "mjpeg", {"pix_fmt": "yuvj420p"}),
    "ffv1": ("a.mkv", "ffv1", {}),
    "prores": ("a.mov", "prores", {"pix_fmt": "yuv422p10le"}),
    "flv1": ("a.flv", "flv", {}),
}
#: Those of which all is decoded: fields, key frames that others reach over, unknown codecs.
WHOLE = {"h264-avi", "h264-interlaced", "h264-open", "h264-refresh", "flv1"}
_FRAMES, _SIZE = 120, (96, 128)


def film(folder, kind, *, gop=15):
    """Write a video of moving noise."""
    name, codec, more = KINDS[kind]
    rng, path = random.Random(2), folder / name
    times = [n / 25 for n in range(_FRAMES)]
    if more.get("variable"):
        for n in range(1, _FRAMES):
            times[n] = times[n - 1] + rng.choice([0.02, 0.04, 0.04, 0.1, 0.5, 1.3])
    noise = np.random.default_rng(1).integers(0, 256, (*_SIZE, 3), np.uint8)
    with av.open(str(path), "w", options=more.get("container", {})) as container:
        stream = container.add_stream(codec, rate=25, options=more.get("options", {}))
        stream.height, stream.width = _SIZE
        stream.pix_fmt = more.get("pix_fmt", "yuv420p")
        context = stream.codec_context
        context.gop_size = gop
        old = codec.startswith("mpeg")
        context.time_base = Fraction(1, 25) if old else Fraction(1, 1000)
        if "between" in more:
            context.max_b_frames = more["between"]
        for number in range(_FRAMES):
            frame = av.VideoFrame.from_ndarray(np.roll(noise, 3 * number, 1), format="bgr24")
            frame.pts = round(times[number] / context.time_base) + more.get("shift", 0)
            frame.time_base = context.time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def decoded(path, selection=None, *, is_damaged=False):
    """Return number, time and digest of each frame, and how many the codec decoded."""

    def digest(picture):  # of a format that every PyAV turns into an array
        return hashlib.sha256(picture.to_ndarray(format="rgb48le").tobytes()).digest()

    with closing(VideoStream(str(path).encode())) as stream:
        frames = [
            (each.frame, each.time, digest(each.picture))
            for each in stream.frames(selection)
            if each is not None
        ]
        assert is_damaged or not stream.damage.text(stream.decoded)
        return frames, stream.decoded


def chosen(frames, selection):
    """Return those of all frames that a selection takes."""
    taken = []
    for each in frames:
        if selection.is_over(each[1]):
            break
        if selection.takes(each[1]):
            taken.append(each)
    return taken


def options(rng, frames):
    """Yield options of selections of all kinds."""
    last = frames[-1][1]
    for _ in range(10):
        start = rng.choice([0.0, rng.uniform(0, last), rng.choice(frames)[1]])
        stop = start + rng.choice([np.inf, rng.uniform(0.5, last)])
        every, fps = rng.choice([(1, None), (3, None), (25, None), (40, None), (1, 0.8), (1, 5.0)])
        yield {"every": every, "fps": fps, "start_s": start, "stop_s": stop}


@pytest.mark.parametrize("kind", KINDS)
def test_frames_are_those_of_a_full_decode(tmp_path, kind):
    path = film(tmp_path, kind)
    everything, count = decoded(path)
    assert count == _FRAMES

    for each in options(random.Random(kind), everything):
        wanted = chosen(everything, Selection(**each))
        if wanted:
            assert decoded(path, Selection(**each))[0] == wanted, each

    _, needed = decoded(path, Selection(start_s=everything[-5][1]))
    if kind in WHOLE:
        assert needed == _FRAMES
    elif path.suffix != ".mpg":  # whose time stamps are not always right
        assert needed <= 30


def copied(source, target, *, shift_s=0.0, without=(), container=None):
    """Copy the packets of a video, shifted in time and without some."""
    with (
        av.open(str(source)) as read,
        av.open(str(target), "w", options=container or {}) as written,
    ):
        stream = read.streams.video[0]
        copy = written.add_stream_from_template(stream)
        for number, packet in enumerate(read.demux(stream)):
            if not packet.size or number in without:
                continue
            packet.pts += int(shift_s / stream.time_base)
            if packet.dts is not None:
                packet.dts += int(shift_s / stream.time_base)
            packet.stream = copy
            written.mux(packet)
    return target


@pytest.mark.parametrize(
    "kind", ["edit list", "late", "no key first", "no key later", "twice", "cut in front"]
)
def test_odd_files_have_the_frames_of_a_full_decode(tmp_path, kind):
    path = tmp_path / "odd.ts"
    match kind:
        case "edit list":
            path = copied(
                film(tmp_path, "h264"), tmp_path / "odd.mp4", shift_s=-1.0,
                container={"avoid_negative_ts": "disabled"},
            )  # fmt: skip
        case "late":
            path = copied(film(tmp_path, "h264"), tmp_path / "odd.mp4", shift_s=2.0)
        case "no key first":
            copied(film(tmp_path, "mpeg2"), path, without=range(4))
        case "no key later":  # frames then come in another order than that of their time stamps
            copied(film(tmp_path, "mpeg2"), path, without=(16, 17, 18, 19, 31, 32, 33, 34))
        case "twice":
            path.write_bytes(2 * film(tmp_path, "h265-ts").read_bytes())
        case _:
            data = film(tmp_path, "h264-ts").read_bytes()
            path.write_bytes(data[len(data) // 7 // 188 * 188 :])
    everything, _ = decoded(path, is_damaged=True)
    assert len(everything) > 60

    for each in options(random.Random(kind), everything):
        wanted = chosen(everything, Selection(**each))
        if wanted:
            assert decoded(path, Selection(**each), is_damaged=True)[0] == wanted, each


@pytest.mark.parametrize("kind", ["h264", "h265-open", "mpeg4-mp4", "mpeg4", "mjpeg", "mpeg2"])
def test_numbers_and_times_are_those_of_a_full_decode_where_there_is_damage(tmp_path, kind):
    path = film(tmp_path, kind)
    whole, rng = path.read_bytes(), np.random.default_rng(4)
    for _ in range(12):
        data = bytearray(whole)
        for place in rng.integers(len(data) // 5, len(data) * 4 // 5, 3):
            data[place : place + 40] = rng.bytes(40)
        path.write_bytes(data)
        everything, _ = decoded(path, is_damaged=True)
        start = everything[int(rng.integers(20, len(everything) - 5))][1]

        rest, _ = decoded(path, Selection(start_s=start), is_damaged=True)

        assert [each[:2] for each in rest] == [e[:2] for e in everything if e[1] >= start]


def test_pieces_that_are_left_out_keep_their_numbers(tmp_path):
    path = clip(tmp_path / "a.avi", 100, codec="mjpeg", pix_fmt="yuvj420p")
    data = bytearray(path.read_bytes())
    place = len(data) // 2
    for _ in range(7):
        place = data.find(b"\xff\xd8\xff", place + 1)
        data[place : data.find(b"00dc", place)] = bytes(data.find(b"00dc", place) - place)
    path.write_bytes(data)

    watcher = watch(path)

    ((_, kind, text),) = watcher.failures
    assert kind == "damaged"
    assert "7 damaged pieces left out" in text
    assert len(watcher.frames) == 93
    assert watcher.frames == watcher.shown
    assert watch(path, start="3.6s").frames == list(range(90, 100))


def test_a_run_goes_on_within_a_part(tmp_path):
    path = clip(tmp_path / "a.mp4", 200, codec="libx264")
    whole = watch(path, start="2s", every=7)

    rest = watch(path, start="2s", every=7, first=11)

    assert whole.frames == whole.shown == list(range(50, 200, 7))
    assert rest.shown == whole.shown[11:]
    assert [i.payload[3:] for i in rest.items] == [i.payload[3:] for i in whole.items[11:]]


# --- parts without a frame ------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["mpeg4", "flv"])
def test_a_start_behind_the_end_is_told(tmp_path, codec):
    short = clip(tmp_path / "short.flv" if codec == "flv" else tmp_path / "s.mp4", 50, codec=codec)
    long = clip(tmp_path / "long.mp4", 300)

    watcher = watch(short, long, start="10s")

    ((source, kind, text),) = watcher.failures
    assert (source, kind) == (str(short), "empty")
    assert "start is 10 s, but its last frame is at 1.96 s: nothing of it is taken" in text
    assert watcher.frames == list(range(250, 300))


def test_a_part_between_two_frames_is_told(tmp_path):
    watcher = watch(clip(tmp_path / "a.mp4", 100), start="1.01s", stop="1.02s")

    ((_, kind, text),) = watcher.failures
    assert kind == "empty"
    assert "no frame is between start, 1.01 s, and stop, 1.02 s" in text


def test_damage_is_told_once_where_it_leaves_nothing_of_a_part(tmp_path):
    path = clip(tmp_path / "a.avi", 200, (240, 320), codec="mpeg4")
    damage(path, 0.3, 0.99)

    ((_, kind, text),) = watch(path, start="7.9s").failures

    assert kind in {"damaged", "decoder", "empty"}
    assert text
