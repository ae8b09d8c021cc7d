"""The sink for films: what the encoder process makes of drawn frames in shared memory."""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import av
import numpy as np
import pytest

from gepipe.errors import ConfigError, GepipeError
from gepipe.io.failures import Failure
from gepipe.io.original import Origin
from gepipe.io.sink import Record
from gepipe.runtime.memory import SharedBuffer
from gepipe.video.encoder import Encoder
from gepipe.video.film import Quality
from gepipe.video.frame import Frame
from gepipe.video.sink import VideoSink


class Arena:
    """Frames of a few pieces of shared memory, as the feed of a run lends them."""

    def __init__(self, pieces: int, nbytes: int, live: bool = False) -> None:
        self.memory = SharedBuffer.create(pieces * nbytes)
        self.live = live
        self.free = [piece * nbytes for piece in range(pieces)]
        self.frames: dict[int, Frame] = {}
        self.gone = None
        self._read, self._write = os.pipe2(os.O_CLOEXEC)

    def lend(self, gone) -> int:
        self.gone = gone
        lent, self._write = self._write, -1
        return lent

    def keep_frame(self, index: int) -> Frame | None:
        return self.frames.pop(index, None)

    def put(self, index: int, picture, time: float, video: int = 0) -> None:
        """Write a picture where there is room, waiting for the encoder to give some back."""
        while not self.free:
            data = os.read(self._read, 8)
            if not data:
                raise self.gone()
            self.free += struct.unpack("=Q", data)
        offset = self.free.pop()
        height, width = picture.shape[:2]
        self.view(offset, height, width)[:] = picture
        self.frames[index] = Frame(offset, height, width, time, video)

    def view(self, offset: int, height: int, width: int):
        flat = np.frombuffer(self.memory.map, np.uint8, height * width * 3, offset)
        return flat.reshape(height, width, 3)

    def close(self) -> None:
        os.close(self._read)
        if self._write >= 0:
            os.close(self._write)
        self.memory.close()


@contextmanager
def arena(pieces: int = 4, nbytes: int = 1 << 20, live: bool = False) -> Iterator[Arena]:
    frames = Arena(pieces, nbytes, live)
    try:
        yield frames
    finally:
        frames.close()


def shade(index: int, height: int = 48, width: int = 64):
    """A picture whose grey tells its number."""
    return np.full((height, width, 3), 16 + index * 8 % 224, np.uint8)


def feed_in(file, frames, count, *, first=0, path="street.avi", video=0, failed=(), times=None):
    """Do what a run does with `count` frames of a source: one outcome a portion."""
    for number in range(count):
        index = first + number
        time = times[number] if times else number / 10
        frames.put(index, shade(number), time, video)
        source = f"{path}#frame={number}"
        if number in failed:
            file.see([Failure(index, source, "post", "shape", "why")])
            continue
        record = Record(index, source, b'{"detections": []}')
        file.see([record])
        file.write([record])


def read_film(path):
    """Return time stamps, sizes and the grey in the middle of each frame, as a player sees them."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = [
            (
                float(frame.time),
                frame.width,
                frame.height,
                int(frame.to_ndarray(format="gray")[8, 8]),
            )
            for frame in container.decode(stream)
        ]
        facts = (stream.codec_context.name, stream.codec_context.pix_fmt)
        length = float(stream.duration * stream.time_base)
    return frames, facts, length


def boxes_of(path):
    """Return the top-level boxes of an MP4 in order."""
    data, found, at = path.read_bytes(), [], 0
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        found.append(kind.decode())
        at += size
    return found


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def encoder_pid(file) -> int:
    return file._process._child.process.pid


def test_film_of_more_frames_than_the_memory_holds(tmp_path):
    sink = VideoSink(str(tmp_path / "out.jsonl"))

    with arena(pieces=3) as frames:
        file = sink.open()
        file.attach(frames)
        feed_in(file, frames, 30)
        file.close(complete=True)

    film = tmp_path / "out" / "000-street.mp4"
    shown, facts, length = read_film(film)
    assert facts == ("h264", "yuv420p")
    assert [round(time, 4) for time, *_ in shown] == [n / 10 for n in range(30)]
    assert length == pytest.approx(3.0)
    for number, (_, _, _, grey) in enumerate(shown):
        assert abs(grey - int(shade(number)[0, 0, 0])) <= 4
    assert boxes_of(film)[:2] == ["ftyp", "moov"]  # browsers play it while it loads
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["000-street.mp4"]
    lines = lines_of(tmp_path / "out.jsonl")
    assert lines[7] == {
        "index": 7,
        "source": "street.avi#frame=7",
        "film": "000-street.mp4",
        "result": {"detections": []},
    }
    assert len(lines) == 30


def test_odd_sizes_and_varying_times_are_kept(tmp_path):
    sink = VideoSink(str(tmp_path / "out.jsonl"), crf=10)
    times = [2.0, 2.04, 2.1, 2.5, 2.533, 4.0, 4.04]

    with arena(nbytes=641 * 481 * 3) as frames:
        file = sink.open()
        file.attach(frames)
        for number, time in enumerate(times):
            frames.put(number, shade(number, 481, 641), time)
            record = Record(number, f"street.avi#frame={number}", b"{}")
            file.see([record])
            file.write([record])
        file.close(complete=True)

    shown, _, length = read_film(tmp_path / "out" / "000-street.mp4")
    assert [round(time, 3) for time, *_ in shown] == [round(time - 2.0, 3) for time in times]
    assert {(width, height) for _, width, height, _ in shown} == {(642, 482)}
    assert length == pytest.approx(2.04 + 0.033, abs=0.001)


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (17, 33), (1080, 1919)])
def test_pictures_of_any_size_make_a_film(tmp_path, size):
    sink = VideoSink(str(tmp_path / "out.jsonl"), preset="ultrafast")
    height, width = size

    with arena(pieces=2, nbytes=height * width * 3) as frames:
        file = sink.open()
        file.attach(frames)
        for number in range(3):
            frames.put(number, shade(number, height, width), number / 25)
            file.see([Record(number, f"a.mp4#frame={number}", b"{}")])
        file.close(complete=True)

    shown, facts, _ = read_film(tmp_path / "out" / "000-a.mp4") if min(size) > 8 else ([], None, 0)
    if shown:
        assert facts == ("h264", "yuv420p")
        assert {frame[1:3] for frame in shown} == {(width + width % 2, height + height % 2)}
    with av.open(str(tmp_path / "out" / "000-a.mp4")) as container:
        assert container.streams.video[0].frames == 3


def test_a_video_that_changes_its_size_stays_one_film(tmp_path):
    sink = VideoSink(str(tmp_path / "out.jsonl"), crf=5)

    with arena() as frames:
        file = sink.open()
        file.attach(frames)
        for number, (height, width) in enumerate([(64, 96), (128, 192), (96, 96)]):
            frames.put(number, np.full((height, width, 3), 200, np.uint8), number / 25)
            file.see([Record(number, f"a.mp4#frame={number}", b"{}")])
        file.close(complete=True)

    with av.open(str(tmp_path / "out" / "000-a.mp4")) as container:
        pictures = [frame.to_ndarray(format="gray") for frame in container.decode(video=0)]
    assert {picture.shape for picture in pictures} == {(64, 96)}
    assert (abs(pictures[1].astype(int) - 200) < 4).all()
    assert pictures[2][32, 4] < 20  # dark bars beside the square one
    assert abs(int(pictures[2][32, 48]) - 200) < 4


def test_each_video_has_its_film_and_failures_keep_their_pictures(tmp_path):
    sink = VideoSink(str(tmp_path / "out.jsonl"))

    with arena() as frames:
        file = sink.open()
        file.attach(frames)
        feed_in(file, frames, 5, path="a/street.avi", video=0, failed={0, 2})
        # A video that cannot be decoded is one failure without a picture.
        file.see([Failure(5, "broken.avi", "preprocess", "decoder", "why")])
        feed_in(file, frames, 4, first=6, path="b/street.avi", video=2)
        file.close(complete=True)

    films = sorted((tmp_path / "out").iterdir())
    assert [film.name for film in films] == ["000-street.mp4", "002-street.mp4"]
    assert [len(read_film(film)[0]) for film in films] == [5, 4]
    assert [line["index"] for line in lines_of(tmp_path / "out.jsonl")] == [1, 3, 4, 6, 7, 8, 9]


def test_live_sources_come_interleaved_and_end_with_the_run(tmp_path):
    sink = VideoSink(str(tmp_path / "out.jsonl"))

    with arena(live=True) as frames:
        file = sink.open()
        file.attach(frames)
        for number in range(6):
            video = number % 2
            frames.put(number, shade(number), number / 10, video)
            file.see([Record(number, f"rtsp://cam{video}/main#frame={number // 2}", b"{}")])
        file.close(complete=False)  # by Ctrl-C, which is how such a run ends

    films = sorted((tmp_path / "out").iterdir())
    assert [film.name for film in films] == ["000-main.mp4", "001-main.mp4"]
    assert [len(read_film(film)[0]) for film in films] == [3, 3]


def test_an_interrupted_run_keeps_whole_films_only(tmp_path):
    sink = VideoSink(str(tmp_path / "out.jsonl"))

    with arena() as frames:
        file = sink.open()
        file.attach(frames)
        feed_in(file, frames, 6, path="a.avi", video=0)
        feed_in(file, frames, 3, first=6, path="b.avi", video=1)
        file.close(complete=False)

    assert [path.name for path in (tmp_path / "out").iterdir()] == ["000-a.mp4"]
    assert len(read_film(tmp_path / "out" / "000-a.mp4")[0]) == 6
    assert len(lines_of(tmp_path / "out.jsonl")) == 9  # an exact prefix
    again = sink.open()
    assert [mark.index for mark in again.scan()] == [0, 1, 2, 3, 4, 5]  # up to the whole film
    again.close(complete=False)


def test_a_stopped_run_does_not_wait_for_an_encoder_that_stands_still(tmp_path, monkeypatch):
    monkeypatch.setattr("gepipe.video.sinkprocess._GRACE_S", 0.3)
    sink = VideoSink(str(tmp_path / "out.jsonl"))

    with arena(pieces=20) as frames:
        file = sink.open()
        file.attach(frames)
        os.kill(encoder_pid(file), signal.SIGSTOP)
        feed_in(file, frames, 3, path="a.avi", video=0)
        feed_in(file, frames, 3, first=3, path="b.avi", video=1)
        file.close(complete=False)

    assert len(lines_of(tmp_path / "out.jsonl")) == 6
    assert not (tmp_path / "out").exists()


def test_what_is_cut_off_takes_its_film_along(tmp_path):
    sink = VideoSink(str(tmp_path / "out.jsonl"))
    with arena() as frames:
        file = sink.open()
        file.attach(frames)
        feed_in(file, frames, 3, path="a.avi", video=0)
        feed_in(file, frames, 3, first=3, path="b.avi", video=1)
        file.close(complete=True)
    again = sink.open()
    marks = list(again.scan())

    again.cut(marks[2].end)

    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".out.parts", "000-a.mp4"]
    again.clear()
    again.close(complete=False)
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "out.jsonl").read_bytes() == b""


def test_a_killed_encoder_ends_the_run_with_its_reason(tmp_path):
    sink = VideoSink(str(tmp_path / "out.jsonl"))

    with arena(pieces=2) as frames:
        file = sink.open()
        file.attach(frames)
        feed_in(file, frames, 4)
        os.kill(encoder_pid(file), signal.SIGKILL)
        with pytest.raises(GepipeError, match=r"encoder process was lost \(killed by SIGKILL"):
            feed_in(file, frames, 50, first=4)
        written = lines_of(tmp_path / "out.jsonl")
        file.close(complete=False)

    assert [line["index"] for line in written] == list(range(len(written)))
    assert not (tmp_path / "out").exists()  # no film, not even a part of one


def test_a_killed_encoder_is_told_where_frames_are_waited_for(tmp_path):
    sink = VideoSink(str(tmp_path / "out.jsonl"))

    with arena(pieces=2) as frames:
        file = sink.open()
        file.attach(frames)
        os.kill(encoder_pid(file), signal.SIGKILL)
        error = frames.gone()
        file.close(complete=False)

    assert "killed by SIGKILL" in str(error)


def shown_until_it_fails(file, frames, picture):
    for number in range(60):
        frames.put(number, np.roll(picture, 17 * number, axis=1), number / 25)
        record = Record(number, f"a.mp4#frame={number}", b"{}")
        file.see([record])
        file.write([record])
    file.close(complete=True)


def test_a_full_disk_is_told_and_leaves_no_film(tmp_path):
    sink = VideoSink(str(tmp_path / "out.jsonl"), crf=0)
    noise = np.random.default_rng(0).integers(0, 255, (480, 640, 3), dtype=np.uint8)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    with arena(pieces=2, nbytes=noise.nbytes) as frames:
        file = sink.open()
        file.attach(frames)
        resource.prlimit(encoder_pid(file), resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
        with pytest.raises(GepipeError, match=r"000-a.mp4' .*file too large.*--resume"):
            shown_until_it_fails(file, frames, noise)
        file.close(complete=False)

    lines = lines_of(tmp_path / "out.jsonl")
    assert [line["index"] for line in lines] == list(range(len(lines)))
    assert not (tmp_path / "out").exists()


def test_the_encoder_may_fall_behind_without_holding_up_the_run(tmp_path):
    sink = VideoSink(str(tmp_path / "out.jsonl"))
    count = 2000

    with arena(pieces=count, nbytes=48 * 64 * 3) as frames:
        file = sink.open()
        file.attach(frames)
        pid = encoder_pid(file)
        os.kill(pid, signal.SIGSTOP)
        feed_in(file, frames, count)  # more messages than a socket takes
        os.kill(pid, signal.SIGCONT)
        file.close(complete=True)

    assert len(read_film(tmp_path / "out" / "000-street.mp4")[0]) == count


def test_pictures_are_refused_before_anything_is_lost(tmp_path):
    (tmp_path / "out.jsonl").write_text("of before\n")
    file = VideoSink(str(tmp_path / "out.jsonl")).open()

    with pytest.raises(ConfigError, match="takes videos, not pictures; use the sink annotated"):
        file.attach(object())

    file.close(complete=False)
    assert (tmp_path / "out.jsonl").read_text() == "of before\n"


def test_a_name_of_any_bytes_is_the_films_too(tmp_path):
    sink = VideoSink(str(tmp_path / "out.jsonl"))
    odd = "街 %d:\udcff.avi"

    with arena() as frames:
        file = sink.open()
        file.attach(frames)
        feed_in(file, frames, 2, path=odd)
        file.close(complete=True)

    (film,) = (tmp_path / "out").iterdir()
    assert film.name == "000-街 %d:\udcff.mp4"
    assert [line["film"] for line in lines_of(tmp_path / "out.jsonl")] == [film.name] * 2
    again = sink.open()
    assert len(list(again.scan())) == 2
    again.close(complete=False)


def test_the_encoder_of_the_sink_draws_into_the_frame_itself():
    picture = shade(0)
    result = {"detections": [{"class": 0, "label": "a", "score": 1.0, "box": [5, 5, 40, 40]}]}

    payload = VideoSink("out.jsonl").encoder(result, Origin({}, lambda: picture))

    assert json.loads(payload) == result
    assert (picture != shade(0)).any()


@pytest.mark.parametrize("option", [{"crf": 52}, {"crf": -1}, {"scale": 0}])
def test_options_out_of_range_are_refused(option):
    with pytest.raises(ValueError, match="expected"):
        VideoSink("out.jsonl", **option)


def test_without_pyav_the_sink_tells_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setattr("gepipe.video.sink.find_spec", lambda _name: None)

    with pytest.raises(ConfigError, match=r"pip install 'gepipe\[video\]'"):
        VideoSink(str(tmp_path / "out.jsonl")).open()


def test_memory_comes_back_in_groups_while_there_is_more_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nbytes = 16 * 16 * 3
    memory = SharedBuffer.create(10 * nbytes)
    reading, writing = os.pipe2(os.O_NONBLOCK)
    body = Encoder(str(tmp_path), str(tmp_path), Quality(23, "ultrafast"))
    list(body.do("memory", (10 * nbytes,), [memory.fd, writing]))
    frames = [(number * nbytes, 16, 16, number / 25) for number in range(10)]

    for each in frames:
        list(body.do("frames", ("a.mp4", [each]), []))
    busy = os.read(reading, 4096)
    body.rest()
    idle = os.read(reading, 4096)

    assert len(busy) == 8 * 8
    assert [offset for (offset,) in struct.iter_unpack("=Q", busy + idle)] == [f[0] for f in frames]
    assert list(body.finish()) == ["a.mp4"]
    for fd in (reading, writing):
        os.close(fd)
    memory.close()
