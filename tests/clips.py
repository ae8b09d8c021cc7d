"""Videos made by the tests, each frame of which shows its number, and feeds of them.

Imports PyAV and NumPy, so only tests of videos may import it.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from gepipe.io.frames import FAILED
from gepipe.io.source import Entry
from gepipe.io.videos import VideoFiles
from gepipe.video.feed import VideoFeed

#: Bars of a frame, black for 0 and white for 1, the most significant first.
_BITS = 12


def picture(number: int, height: int = 48, width: int = 96) -> np.ndarray:
    """Return a frame that shows its number, (height, width, 3) uint8."""
    bars = [255 if number >> bit & 1 else 0 for bit in reversed(range(_BITS))]
    columns = np.repeat(np.array(bars, np.uint8), -(-width // _BITS))[:width]
    frame = np.repeat(np.repeat(columns[None, :, None], height, 0), 3, 2)
    frame[height - height // 4 :] = (255, 0, 0)  # so that top and bottom differ
    return frame


def number_in(frame: np.ndarray) -> int:
    """Read the number that a frame shows."""
    width = frame.shape[1]
    step = -(-width // _BITS)
    row = frame[frame.shape[0] // 2, :, 1]
    number = 0
    for bit in range(_BITS):
        number = number << 1 | int(row[min(width - 1, bit * step + step // 2)] > 127)
    return number


def clip(
    path: Path,
    frames: int,
    size: tuple[int, int] = (48, 96),
    *,
    fps: int = 25,
    codec: str = "mpeg4",
    pix_fmt: str = "yuv420p",
    times: Sequence[float] = (),
    matrix: Sequence[int] = (),
    stuck: int | None = None,
    form: str | None = None,
    first: int = 0,
) -> Path:
    """Write a video whose frame n shows `first + n`; at `times` seconds if given.

    From the frame `stuck` on, all have its time stamp.
    """
    with av.open(str(path), "w", format=form) as container:
        stream = container.add_stream(codec, rate=fps)
        stream.height, stream.width = size
        stream.pix_fmt = pix_fmt
        stream.codec_context.time_base = Fraction(1, 1000) if times else Fraction(1, fps)
        stream.codec_context.gop_size = 10
        if matrix:  # of a picture with the origin at its top left: a, b, c, d
            a, b, c, d = (65536 * each for each in matrix)
            stream.set_display_matrix([a, b, 0, c, d, 0, 0, 0, 1 << 30])
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(picture(first + number, *size), format="bgr24")
            frame.pts = round(1000 * times[number]) if times else number
            frame.time_base = stream.codec_context.time_base
            for packet in stream.encode(frame):
                if stuck is not None and number > stuck:
                    packet.pts = packet.dts = stuck
                container.mux(packet)
        container.mux(stream.encode(None))
    return path


def damage(path: Path, start: float, stop: float) -> None:
    """Overwrite a share of a file's bytes."""
    data = bytearray(path.read_bytes())
    first, last = int(len(data) * start), int(len(data) * stop)
    noise = np.random.default_rng(3).integers(0, 256, last - first, np.uint8)
    data[first:last] = noise.tobytes()
    path.write_bytes(data)


class Watcher:
    """Takes items of a feed as a run does, and looks at the frames.

    Attributes:
        items: Source and payload of each item so far.
        shown: Numbers that the frames show.
        sizes: Of the frames, height and width.
    """

    def __init__(self, feed: VideoFeed, batch: int = 8, first: int = 0) -> None:
        self.feed = feed
        self.items: list[Entry] = []
        self.shown: list[int] = []
        self.sizes: list[tuple[int, int]] = []
        self._batch = batch
        self._next = first
        self._poll = select.poll()
        self._poll.register(feed.fileno(), select.POLLIN)

    def take(self, wait_s: float = 60.0) -> bool:
        """Take what is there, waiting for something; whether there may be more."""
        while True:
            entries, ended, _ = self.feed.take(self._batch)
            for entry in entries:
                self._look(entry)
            self.feed.used(range(self._next, self._next + len(entries)))
            self._next += len(entries)
            if ended or entries:
                return not ended
            assert self._poll.poll(1000 * wait_s), f"nothing in {wait_s} s"

    def all(self) -> list[Entry]:
        """Take all there is, and return it."""
        while self.take():
            pass
        return self.items

    def _look(self, entry: Entry) -> None:
        self.items.append(entry)
        if entry.payload[0] == FAILED:
            return
        offset, height, width = entry.payload[:3]
        memory = np.frombuffer(self.feed.memory.map, np.uint8, height * width * 3, offset)
        self.shown.append(number_in(memory.reshape(height, width, 3)))
        self.sizes.append((height, width))

    @property
    def frames(self) -> list[int]:
        """Numbers of the frames, as the feed says."""
        return [e.payload[5] for e in self.items if e.payload[0] != FAILED]

    @property
    def times(self) -> list[float]:
        """Times of the frames."""
        return [round(e.payload[3], 6) for e in self.items if e.payload[0] != FAILED]

    @property
    def failures(self) -> list[tuple[str, str, str]]:
        """Source, kind and text of what failed."""
        return [(e.source, *e.payload[1:]) for e in self.items if e.payload[0] == FAILED]


def watch(*paths: Path | str, batch: int = 8, first: int = 0, **options) -> Watcher:
    """Take all items of a feed of these videos, and close it."""
    limit, keep = options.pop("limit", None), options.pop("keep", False)
    source = VideoFiles(tuple(str(path) for path in paths), **options)
    feed = VideoFeed(source, source.entries(), batch=batch, first=first, limit=limit, keep=keep)
    try:
        watcher = Watcher(feed, batch, first)
        watcher.all()
        return watcher
    finally:
        feed.close()
