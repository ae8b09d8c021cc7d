"""What codecs make of damaged places: alike in every run, whichever frames are looked at."""

from __future__ import annotations

import gc
import hashlib
from contextlib import closing, contextmanager

import av
import numpy as np
import pytest

from gepipe.video.framewriter import FrameWriter
from gepipe.video.stream import VideoStream


@contextmanager
def no_garbage_collection():
    """Leave only what references count."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def noisy(path, codec, *, frames=60, size=(96, 160), pix_fmt="yuv420p", gop=10):
    """Write a video of moving noise, each part of which is worth some bits."""
    noise = np.random.default_rng(1).integers(0, 256, (*size, 3), np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25)
        stream.height, stream.width, stream.pix_fmt = *size, pix_fmt
        stream.codec_context.gop_size = gop
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(np.roll(noise, 3 * number, 1), format="bgr24")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def written(path, first=0):
    """Return the digest of each frame from `first` on, by number, as a decoder writes it."""
    writer, memory, digests = FrameWriter(), None, {}
    with closing(VideoStream(str(path).encode())) as stream:
        for each in stream.frames():
            if each is None or each.frame < first:
                continue
            if memory is None:
                memory = np.zeros((*writer.size(each.picture), 3), np.uint8)
            writer.write(each.picture, memory)
            digests[each.frame] = hashlib.sha256(memory).hexdigest()
    return digests


def test_memory_of_a_frame_is_free_again_when_the_next_one_is_there(tmp_path):
    path = noisy(tmp_path / "a.mp4", "mpeg4")
    writer, places, frames = FrameWriter(), set(), 0

    with no_garbage_collection(), closing(VideoStream(str(path).encode())) as stream:
        memory = np.zeros((96, 160, 3), np.uint8)
        for each in stream.frames():
            assert each is not None
            assert writer.size(each.picture) == (96, 160)
            writer.write(each.picture, memory)
            places.add(each.picture.planes[0].buffer_ptr)
            frames += 1

    assert frames == 60
    assert len(places) <= 6


@pytest.mark.parametrize(
    ("name", "codec", "pix_fmt"),
    [("a.avi", "mjpeg", "yuvj420p"), ("a.mkv", "mjpeg", "yuvj420p"), ("a.ts", "mpeg2video", "")],
)
def test_damaged_frames_are_made_up_alike_whichever_came_before(tmp_path, name, codec, pix_fmt):
    path = noisy(tmp_path / name, codec, pix_fmt=pix_fmt or "yuv420p")
    whole, rng = path.read_bytes(), np.random.default_rng(7)
    damaged = 0
    for _ in range(25):
        data = bytearray(whole)
        for place in rng.integers(len(data) // 10, len(data) - 400, 5):
            data[place : place + 30] = rng.bytes(30)
        path.write_bytes(data)

        everything = written(path)

        for first in (7, 33):
            rest = written(path, first)
            assert rest == {n: each for n, each in everything.items() if n >= first}
        with closing(VideoStream(str(path).encode())) as stream:
            list(stream.frames())
            damaged += bool(stream.damage.text(0))
    assert damaged
