"""Files through real decoders: what comes, in which order, and what is said of the rest."""

from __future__ import annotations

import os
import shutil
import socket
from fractions import Fraction
from types import SimpleNamespace

import av
import cv2
import numpy as np
import pytest

from gepipe.io.videos import VideoFiles
from gepipe.video.clock import Clock
from gepipe.video.cut import missing_nbytes
from gepipe.video.feed import VideoFeed
from tests.clips import Watcher, clip, damage, picture, watch


def test_frames_come_in_order_with_their_times(tmp_path):
    path = clip(tmp_path / "a.mp4", 30, fps=25)

    watcher = watch(path)

    assert watcher.frames == watcher.shown == list(range(30))
    assert watcher.times == pytest.approx([number / 25 for number in range(30)])
    assert [item.source for item in watcher.items[:2]] == [f"{path}#frame=0", f"{path}#frame=1"]
    assert not watcher.failures


def test_videos_come_one_after_another(tmp_path):
    paths = [clip(tmp_path / f"{n}.mp4", 20, first=100 * n) for n in range(5)]

    watcher = watch(*paths)

    assert watcher.shown == [100 * n + frame for n in range(5) for frame in range(20)]
    assert [item.payload[4] for item in watcher.items] == [n for n in range(5) for _ in range(20)]


def test_each_nth_frame_keeps_its_number(tmp_path):
    watcher = watch(clip(tmp_path / "a.mp4", 23), every=5)

    assert watcher.frames == watcher.shown == [0, 5, 10, 15, 20]
    assert [item.payload[6] for item in watcher.items] == [0, 1, 2, 3, 4]


def test_frames_a_second_are_chosen_by_time_stamps(tmp_path):
    watcher = watch(clip(tmp_path / "a.mp4", 100, fps=25), fps=2)

    assert watcher.frames == watcher.shown
    assert watcher.times == pytest.approx([0, 0.52, 1.0, 1.52, 2.0, 2.52, 3.0, 3.52], abs=0.021)
    assert len(watcher.times) == 8


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"every": 0}, "every is 0; expected at least 1"),
        ({"fps": 0.0}, "fps is 0.0; expected more than 0"),
        ({"every": 5, "fps": 2.5}, r"every is 5 and fps is 2\.5; expected one of the two, .*leave"),
        ({"start": "2s", "stop": 2.0}, "stop is 2.0 s; expected more than start, 2.0 s"),
        ({"stop": "soon"}, "stop: expected a duration such as 50ms, .*, got 'soon'"),
    ],
)
def test_what_contradicts_itself_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        VideoFiles("a.mp4", **options)


def test_one_frame_of_each_may_be_asked_for_beside_frames_a_second():
    assert VideoFiles("a.mp4", every=1, fps=2.5).fps == 2.5


def test_a_part_of_a_video_keeps_the_numbers_of_its_frames(tmp_path):
    watcher = watch(clip(tmp_path / "a.mp4", 100, fps=25), start="1s", stop="2s")

    assert watcher.frames == watcher.shown == list(range(25, 50))


def test_time_stamps_of_a_variable_rate_are_kept(tmp_path):
    times = [0.0, 0.04, 0.08, 0.5, 0.9, 0.92, 3.0]

    watcher = watch(clip(tmp_path / "a.mkv", len(times), times=times))

    assert watcher.times == pytest.approx(times)
    assert watcher.shown == list(range(len(times)))


@pytest.mark.parametrize(
    ("matrix", "upright"),
    [
        ((1, 0, 0, 1), lambda image: image),
        ((0, -1, 1, 0), lambda image: np.rot90(image, 1)),
        ((-1, 0, 0, -1), lambda image: np.rot90(image, 2)),
        ((0, 1, -1, 0), lambda image: np.rot90(image, 3)),
        ((-1, 0, 0, 1), np.fliplr),
        ((1, 0, 0, -1), np.flipud),
        ((0, 1, 1, 0), lambda image: image.transpose(1, 0, 2)),
        ((0, -1, -1, 0), lambda image: np.rot90(image, 2).transpose(1, 0, 2)),
    ],
    # No names of functions, which have an address that differs from process to process.
    ids=lambda value: "" if callable(value) else str(value),
)
def test_frames_are_upright(tmp_path, matrix, upright):
    path = clip(tmp_path / "a.mp4", 3, (48, 96), matrix=matrix)
    with av.open(str(path)) as container:
        stored = [f.to_ndarray(format="bgr24") for f in container.decode(video=0)]
    assert not np.array_equal(stored[1], np.flipud(stored[1]))
    assert not np.array_equal(stored[1], np.fliplr(stored[1]))

    from gepipe.video.framewriter import FrameWriter
    from gepipe.video.stream import VideoStream

    stream, writer = VideoStream(str(path).encode()), FrameWriter()
    for decoded, was in zip(stream.frames(), stored, strict=True):
        assert decoded is not None
        memory = np.zeros((*writer.size(decoded.picture), 3), np.uint8)
        writer.write(decoded.picture, memory)
        assert np.array_equal(memory, upright(was))
    stream.close()

    assert set(watch(path).sizes) == {upright(stored[0]).shape[:2]}


@pytest.mark.parametrize("size", [(47, 95), (1, 1), (481, 641), (2, 4000)])
def test_sizes_may_be_odd(tmp_path, size):
    path = clip(tmp_path / "a.avi", 3, size, codec="png", pix_fmt="rgb24")

    watcher = watch(path)

    assert watcher.sizes == [size] * 3
    if size[1] >= 95:
        assert watcher.shown == [0, 1, 2]


def test_sizes_may_change_from_video_to_video(tmp_path):
    sizes = [(48, 96), (120, 160), (24, 48), (480, 640), (48, 96)]
    paths = [clip(tmp_path / f"{n}.mp4", 12, size) for n, size in enumerate(sizes)]

    watcher = watch(*paths, memory="4MiB")

    assert watcher.shown == list(range(12)) * 5
    assert watcher.sizes == [size for size in sizes for _ in range(12)]


# --- what is wrong with videos --------------------------------------------------------------------


def test_each_broken_file_fails_with_its_reason_and_the_others_go_on(tmp_path):
    good = clip(tmp_path / "good.mp4", 10)
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(good.read_bytes()[: good.read_bytes().index(b"moov") - 4])
    text = tmp_path / "text.mp4"
    text.write_text("no video\n" * 100)
    empty = tmp_path / "empty.mp4"
    empty.touch()
    folder = tmp_path / "folder.mp4"
    folder.mkdir()
    (folder / "odd").mkdir()
    sound = tmp_path / "sound.mp4"
    with av.open(str(sound), "w") as container:
        stream = container.add_stream("aac", rate=44100)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        frame.rate = 44100
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    missing = tmp_path / "missing.mp4"

    watcher = watch(cut, text, empty, sound, missing, good, good)

    kinds = [(source.rpartition("/")[2], kind) for source, kind, _ in watcher.failures]
    assert kinds == [
        ("cut.mp4", "decoder"),
        ("text.mp4", "decoder"),
        ("empty.mp4", "empty"),
        ("sound.mp4", "decoder"),
        ("missing.mp4", "missing"),
    ]
    texts = [text for _, _, text in watcher.failures]
    assert "moov atom not found" in texts[0]
    assert "no video stream; it holds audio" in texts[3]
    assert watcher.shown == list(range(10)) * 2


def test_a_title_that_is_not_utf8_hides_no_frame(tmp_path):
    path = tmp_path / "a.mkv"
    with av.open(str(path), "w") as container:
        container.metadata["title"] = "a caf__ in Lyon"
        stream = container.add_stream("ffv1", rate=25)
        stream.height, stream.width, stream.pix_fmt = 48, 96, "bgr0"
        container.mux(stream.encode(av.VideoFrame.from_ndarray(picture(7), format="bgr24")))
        container.mux(stream.encode(None))
    data = path.read_bytes()
    assert b"caf__" in data
    path.write_bytes(data.replace(b"caf__", b"caf\xe9 "))

    watcher = watch(path)

    assert (watcher.shown, watcher.failures) == ([7], [])


def test_a_picture_for_the_cover_is_no_video(tmp_path):
    path = tmp_path / "song.mp4"
    with av.open(str(path), "w") as container:
        sound = container.add_stream("aac", rate=44100)
        cover = container.add_stream("mjpeg")
        cover.width = cover.height = 64
        cover.pix_fmt = "yuvj420p"
        cover.disposition = av.stream.Disposition.attached_pic
        packet = av.Packet(cv2.imencode(".jpg", np.zeros((64, 64, 3), np.uint8))[1].tobytes())
        packet.stream, packet.pts, packet.dts = cover, 0, 0
        container.start_encoding()
        container.mux(packet)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        frame.rate = 44100
        container.mux(sound.encode(frame))
        container.mux(sound.encode(None))

    ((_, kind, text),) = watch(path).failures

    assert kind == "decoder"
    assert text.endswith("has no video stream; it holds an attached picture, audio")


def test_an_unknown_codec_is_a_failure_and_not_no_frames(tmp_path):
    path = clip(tmp_path / "a.avi", 10)
    path.write_bytes(path.read_bytes().replace(b"FMP4", b"ZZZZ"))

    watcher = watch(path)

    ((_, kind, text),) = watcher.failures
    assert kind == "decoder"
    assert "no decoder" in text or "no frame could be decoded" in text
    assert "probesize" not in text, "which nobody can set"
    assert not watcher.frames


def test_damage_within_is_left_out_and_told_once(tmp_path):
    path = clip(tmp_path / "a.avi", 200, (240, 320), codec="mpeg4")
    damage(path, 0.4, 0.45)

    watcher = watch(path)

    ((source, kind, text),) = watcher.failures
    assert (source, kind) == (str(path), "damaged")
    assert "frames decoded" in text
    assert 150 < len(watcher.frames) <= 200
    assert watcher.frames == sorted(set(watcher.frames))
    assert watcher.items[-1].source == str(path)
    assert watcher.shown[-50:] == list(range(150, 200))


def test_each_piece_that_is_left_out_is_a_sign_of_life(tmp_path):
    path = clip(tmp_path / "a.avi", 100, codec="mjpeg", pix_fmt="yuvj420p")
    data = bytearray(path.read_bytes())
    place = len(data) // 10
    while (place := data.find(b"\xff\xd8\xff", place)) >= 0:
        end = data.find(b"00dc", place) if b"00dc" in data[place:] else len(data)
        data[place:end] = bytes(end - place)  # no picture is there any more
    path.write_bytes(data)
    from gepipe.video.stream import VideoStream

    stream = VideoStream(str(path).encode())
    came = list(stream.frames())
    stream.close()

    assert stream.damage.left_out == came.count(None) > 60
    ((_, kind, text),) = watch(path).failures
    assert kind == "damaged"
    assert f"{came.count(None)} damaged pieces left out" in text


def test_a_count_that_lies_changes_nothing(tmp_path):
    path = clip(tmp_path / "a.avi", 40)
    data = bytearray(path.read_bytes())
    for name, offset in ((b"avih", 24), (b"strh", 40)):  # the number of frames in both headers
        place = data.index(name) + offset
        data[place : place + 4] = (444).to_bytes(4, "little")
    path.write_bytes(data)
    with av.open(str(path)) as container:
        assert container.streams.video[0].frames == 444

    watcher = watch(path)

    assert watcher.shown == list(range(40))
    assert not watcher.failures


def test_a_video_that_never_advances_ends(tmp_path):
    path = clip(tmp_path / "a.flv", 600, codec="flv", stuck=100)

    watcher = watch(path)

    ((_, kind, text),) = watcher.failures
    assert kind == "damaged"
    assert "without a later time stamp" in text
    assert 100 < len(watcher.frames) < 600


def test_names_may_be_anything(tmp_path):
    plain = clip(tmp_path / "a.mp4", 3)
    names = ["a:b.mp4", "-v.mp4", "%d.mp4", "ü é.mp4", "new\nline.mp4", "http:x.mp4"]
    paths = [str(shutil.copy(plain, tmp_path / name)) for name in names]
    odd = bytes(tmp_path) + b"/\xff\xfe.mp4"
    with open(odd, "wb") as file:  # noqa: PTH123 - bytes
        file.write(plain.read_bytes())

    watcher = watch(*paths, odd.decode("utf-8", "surrogateescape"))

    assert not watcher.failures
    assert watcher.shown == [0, 1, 2] * 7


# --- memory and ranges ----------------------------------------------------------------------------


def test_a_frame_that_is_larger_than_the_memory_is_told_with_what_to_set(tmp_path):
    large, small = clip(tmp_path / "l.mp4", 3, (480, 640)), clip(tmp_path / "s.mp4", 3)

    watcher = watch(large, small, memory="256KiB")

    ((source, kind, text),) = watcher.failures
    assert (source, kind) == (str(large), "too_large")
    assert "640x480" in text
    assert "set memory of the source" in text
    assert watcher.shown == [0, 1, 2]


def test_memory_of_a_single_frame_is_enough(tmp_path):
    watcher = watch(clip(tmp_path / "a.mp4", 20, (240, 320)), memory=240 * 320 * 3 + 4096)

    assert watcher.shown == list(range(20))


def test_a_header_that_asks_for_all_memory_gets_none(tmp_path):
    path = clip(tmp_path / "a.avi", 5, codec="msmpeg4")  # whose size only the container tells
    data = bytearray(path.read_bytes())
    for place in (data.index(b"strf") + 12, data.index(b"avih") + 40):
        data[place : place + 8] = (12_000).to_bytes(4, "little") * 2
    path.write_bytes(data)

    watcher = watch(path, clip(tmp_path / "b.mp4", 3), memory="64MiB")

    ((source, kind, text),) = watcher.failures
    assert (source, kind) == (str(path), "too_large")
    assert "12000x12000" in text
    assert watcher.shown == [0, 1, 2]


def test_memory_for_several_frames_is_asked_for_where_a_run_needs_them(tmp_path):
    source = VideoFiles(str(clip(tmp_path / "a.mp4", 3, (240, 320))), memory="1MiB")
    feed = VideoFeed(source, source.entries(), batch=4, keep=True, least=5)
    try:
        watcher = Watcher(feed, 4)
        watcher.all()
    finally:
        feed.close()

    ((_, kind, text),) = watcher.failures
    assert kind == "too_large"
    assert "room for 5 of them" in text


@pytest.mark.parametrize("first", [0, 8, 24, 40, 56])
def test_a_run_goes_on_where_one_was_stopped(tmp_path, first):
    paths = [clip(tmp_path / f"{n}.mp4", 20) for n in range(3)]
    bad = tmp_path / "bad.mp4"
    bad.touch()
    paths.insert(1, bad)
    whole = watch(*paths)

    rest = watch(*paths, first=first)

    assert [item.source for item in rest.items] == [item.source for item in whole.items[first:]]
    assert [i.payload[3:] for i in rest.items] == [i.payload[3:] for i in whole.items[first:]]
    assert rest.shown == whole.shown[first - (first > 20) :]


def test_a_limit_counts_frames(tmp_path):
    watcher = watch(*[clip(tmp_path / f"{n}.mp4", 20) for n in range(3)], limit=33)

    assert len(watcher.items) == 33
    assert watcher.shown == [*range(20), *range(13)]


@pytest.mark.parametrize(("name", "codec"), [("a.ts", "mpeg2video"), ("a.mpg", "mpeg2video")])
def test_time_goes_on_in_recordings_that_were_put_one_behind_the_other(tmp_path, name, codec):
    path = clip(tmp_path / name, 50, codec=codec)
    path.write_bytes(2 * path.read_bytes())

    whole = watch(path)
    some = watch(path, fps=5)

    assert whole.frames == list(range(100))
    assert whole.times == pytest.approx([number / 25 for number in range(100)])
    assert some.frames == list(range(0, 100, 5))
    assert watch(path, start="3s").frames == list(range(75, 100))


def test_one_wrong_time_stamp_moves_no_other():
    stream = SimpleNamespace(time_base=Fraction(1, 1000), start_time=0)
    clock = Clock(stream, 25.0)
    stamps = [number * 40 for number in range(30)]
    stamps[7] = 3_600_000
    stamps[12], stamps[13] = stamps[13], stamps[12]

    times = [clock.read(SimpleNamespace(pts=stamp)) for stamp in stamps]

    assert times == pytest.approx([stamp / 1000 for stamp in stamps])


# --- files that are cut ---------------------------------------------------------------------------

#: Name, codec: of those that say how many bytes there are to be.
_COUNTED = [("a.avi", "mpeg4"), ("a.mkv", "mpeg4"), ("a.webm", "libvpx"), ("a.mkv", "libx264")]


@pytest.mark.parametrize(("name", "codec"), _COUNTED)
def test_a_file_that_is_cut_ends_early_and_that_is_told(tmp_path, name, codec):
    path = clip(tmp_path / name, 100, codec=codec)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 11 // 20])

    watcher = watch(path)

    ((source, kind, text),) = watcher.failures
    assert (source, kind) == (str(path), "damaged")
    of = "100" if name == "a.avi" else "about 100"
    assert f"ended early: {len(watcher.frames)} of {of} frames; the file is cut" in text
    assert f"lacks {len(data) - path.stat().st_size:,} bytes" in text
    assert 5 < len(watcher.frames) < 90
    assert not watch(path, stop="0.2s").failures, "what is taken is all there"


def test_a_cut_mp4_with_its_index_in_front_is_told(tmp_path):
    path = tmp_path / "a.mp4"
    with (
        av.open(str(clip(tmp_path / "b.mp4", 100))) as read,
        av.open(str(path), "w", options={"movflags": "faststart"}) as written,
    ):
        copy = written.add_stream_from_template(read.streams.video[0])
        for packet in read.demux(video=0):
            if packet.size:
                packet.stream = copy
                written.mux(packet)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 4 // 5])

    watcher = watch(path)

    ((_, kind, text),) = watcher.failures
    assert kind == "damaged"
    assert "ended early" in text or "cannot be read any further" in text
    assert 20 < len(watcher.frames) < 90


@pytest.mark.parametrize(
    ("name", "codec"),
    [*_COUNTED, ("a.mp4", "mpeg4"), ("a.mov", "mpeg4"), ("a.ts", "mpeg2video"), ("a.flv", "flv")],
)
def test_a_whole_file_is_not_cut_whatever_is_behind_it(tmp_path, name, codec):
    path = clip(tmp_path / name, 60, codec=codec)

    assert missing_nbytes(bytes(path)) == 0
    path.write_bytes(path.read_bytes() + b"junk" * 50)
    assert missing_nbytes(bytes(path)) == 0
    assert not watch(path).failures


def test_a_recording_that_was_left_open_is_not_taken_for_a_cut_file(tmp_path):
    path = clip(tmp_path / "a.mkv", 60)
    data = bytearray(path.read_bytes())
    place = data.index(b"\x18\x53\x80\x67") + 4
    data[place : place + 8] = b"\x01" + b"\xff" * 7  # the size of what is recorded: unknown
    path.write_bytes(data[: len(data) // 2])

    assert missing_nbytes(bytes(path)) == 0


def test_a_pipe_is_refused_before_anything_waits_for_it(tmp_path):
    pipe, good = tmp_path / "pipe.mp4", clip(tmp_path / "good.mp4", 5)
    os.mkfifo(pipe)
    plug = tmp_path / "socket.mp4"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(plug))

        watcher = watch(pipe, plug, good)

    assert [kind for _, kind, _ in watcher.failures] == ["unreadable"] * 2
    assert "is a pipe; expected a file; set live: true" in watcher.failures[0][2]
    assert "is a socket; expected a video" in watcher.failures[1][2]
    assert watcher.frames == list(range(5))
