"""What codecs make of damaged places: alike in every run, whichever frames are looked at."""

from __future__ import annotations

import gc
import hashlib
from contextlib import closing, contextmanager
from types import SimpleNamespace

import av
import numpy as np
import pytest

from gepipe.errors import ItemError
from gepipe.video.framewriter import FrameWriter
from gepipe.video.lostframes import LostFrames
from gepipe.video.selection import Selection
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


def test_frames_out_of_order_are_awaited_no_more():
    lost = LostFrames(lambda _: True)
    for pts in (0, 1, 2):
        lost.feed(SimpleNamespace(pts=pts))
    assert not lost.came(0, is_key=True)
    lost.fail(4, "bits")
    assert lost.came(2, is_key=False) == [(1, "")]
    assert lost.is_late(1)
    assert not lost.is_late(3)

    assert not lost.came(0, is_key=False)  # as in AVI files with B-frames
    assert not lost.is_late(1)

    lost.feed(SimpleNamespace(pts=3))
    assert lost.rest() == [(4, "bits")]


def damaged(path, places, *, within=False):
    """Damage the packets at these places, in the order they are stored: all of each, or a part."""
    with av.open(str(path)) as container:
        packets = [(p.pos, p.size) for p in container.demux(video=0) if p.size]
    data = bytearray(path.read_bytes())
    for place in places:
        pos, size = packets[place]
        first, length = (pos + size // 2, min(40, size // 4)) if within else (pos, size)
        data[first : first + length] = np.random.default_rng(place).bytes(length)
    path.write_bytes(data)
    return path


def told(path, selection=None):
    """Return the numbers of the frames, and what is said of the rest."""
    with closing(VideoStream(str(path).encode())) as stream:
        frames = [each.frame for each in stream.frames(selection) if each is not None]
        return frames, stream.damage.text(stream.decoded)


@pytest.mark.parametrize(
    ("clip", "places", "missing", "said"),
    [
        ("a.avi mpeg4", [13], [13], "1 damaged piece left out; at frame 13 (0.52 s): "),
        ("a.avi mpeg4 within", [13], [13], "1 damaged piece left out; at frame 13 (0.52 s): conc"),
        ("a.avi mpeg4", [13, 59], [13, 59], "2 damaged pieces left out; at frames 13 (0.52 s), 59"),
        # With B-frames, what is stored 14th is shown 12th, and the last one 59th.
        ("a.mp4 libx264", [13], [11], "1 damaged piece left out; at frame 11 (0.44 s): "),
        ("a.mp4 libx264", [1, 59], [3, 58], "2 damaged pieces left out; at frames 3 (0.12 s), 58"),
        ("a.mp4 libx264 within", [20], [20], "1 damaged piece left out; at frame 20 (0.80 s): err"),
        ("a.mp4 libx265", [13], [11], "1 damaged piece left out; at frame 11 (0.44 s): "),
        # Without a key frame decoders drop others, too, or show them too late; none says so.
        ("a.mp4 libx264", [0], range(10), "10 damaged pieces left out; at frames 0 (0.00 s), 1 "),
        ("a.mp4 libx264", [20], range(18, 27), "9 damaged pieces left out; at frames 18 (0.72 s)"),
        ("a.mp4 libx265", [1], range(1, 10), "9 damaged pieces left out; at frames 1 (0.04 s), 2 "),
    ],
)
def test_what_is_missing_is_counted_and_named(tmp_path, clip, places, missing, said):
    name, codec, *within = clip.split()
    path = damaged(noisy(tmp_path / name, codec), places, within=bool(within))

    frames, text = told(path)

    assert frames == [number for number in range(60) if number not in missing]
    assert text.startswith(f"{len(frames)} frames decoded; {said}")
    rest, text = told(path, Selection(start_s=0.2))
    assert rest == [number for number in frames if number >= 5]
    assert missing[0] < 5 or said in text


@pytest.mark.parametrize("selection", [None, Selection(start_s=0.2), Selection(every=3)])
@pytest.mark.parametrize(("name", "codec"), [("a.mp4", "libx264"), ("a.avi", "mpeg4")])
def test_where_no_frame_can_be_decoded_is_no_damage_but_a_failure(tmp_path, name, codec, selection):
    path = damaged(noisy(tmp_path / name, codec, frames=20), range(20))

    with pytest.raises(ItemError, match="no frame could be decoded") as caught:
        told(path, selection)

    assert caught.value.kind == "decoder"
