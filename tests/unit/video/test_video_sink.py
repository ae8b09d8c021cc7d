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
from gepipe.video.frame import Frame
from gepipe.video.sink import VideoSink
from tests.support import children_of, wait_until


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
            (float(frame.time), frame.width, frame.height, int(frame.to_ndarray(format="gray")[8, 8]))
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


def encoder_pid() -> int:
    """Return the process of the encoder, which is a child of the fork server."""
    (server,) = (
        pid
        for pid in children_of(os.getpid())
        if b"forkserver" in open(f"/proc/{pid}/cmdline", "rb").read()
    )
    (pid,) = children_of(server)
    return pid


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
