"""Decodes one video with PyAV: frame numbers, times, rotation and damage. Loaded by decoders only.

PyAV and not cv2.VideoCapture: it tells time stamps, damage and the reason of a failure, opens with
a limit of time, and has a frame converted by one pass with one copy into memory of ours.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import av
import av.logging
from av.error import FFmpegError

from gepipe.errors import ItemError
from gepipe.io.videos import without_password
from gepipe.video.address import Address
from gepipe.video.clock import Clock
from gepipe.video.coded import Look, look_of
from gepipe.video.cut import missing_nbytes
from gepipe.video.damage import Damage
from gepipe.video.decoding import Decoded, Decoding
from gepipe.video.reasons import reason_of_reading
from gepipe.video.selection import Selection
from gepipe.video.videostate import too_large

_KINDS: Final = {"video": "an attached picture"}
_MARGIN: Final = 1 << 20
#: How much sooner than it says a video without a count of frames ends where the file is cut.
_SHORT_S: Final = 0.1
_PIXELS_MAX: Final = 2**31 - 1

#: A title in another encoding is no reason not to see the pictures: PyAV 19 thinks so by itself.
_LENIENT: Final = (
    {} if int(av.__version__.partition(".")[0]) >= 19 else {"metadata_errors": "replace"}
)


class Facts(NamedTuple):
    """What a video says of itself, which need not be true.

    Attributes:
        frames: How many frames there are; 0 for no idea.
        rate: Frames a second; 0 for no idea.
        codec: Name of the codec.
    """

    frames: int
    rate: float
    codec: str


class VideoStream:
    """An open video.

    Attributes:
        facts: What it says of itself.
    """

    def __init__(
        self,
        path: bytes,
        *,
        threads: int = 1,
        timeout_s: float = 30.0,
        live: bool = False,
        most_bytes: int = 1 << 31,
    ) -> None:
        """Open a video.

        Args:
            path: A path or an address.
            live: Whether to begin as soon as possible, instead of looking far ahead.
            threads: Threads of the codec; 0 for as many as there are processors.
            timeout_s: How long opening, or reading on, may take where a network is in between.
            most_bytes: What there is for a frame, 3 bytes a pixel; larger ones are not decoded.

        Raises:
            ItemError: `missing`, `empty`, `unreadable`, `connection`, `too_large` or `decoder`.
        """
        self.name = without_password(os.fsdecode(path))
        self._path = path
        self._container: Any = None
        self._address = Address.of(path, live=live)
        self._logs = av.logging.Capture(local=False)
        av.logging.set_level(av.logging.INFO)
        self._lines = self._logs.__enter__()
        self._timeout_s = timeout_s
        self._is_file = not (live or self._address.is_remote)
        try:
            self._container = self._opened()
            self._stream = self._video(threads, most_bytes)
        except BaseException:
            self.close()
            raise
        self.facts = self._facts()
        self._clock = Clock(self._stream, self.facts.rate)
        self._decoding = Decoding(
            self._container, self._stream, self._clock, self._lines, timeout_s
        )

    def _opened(self) -> Any:
        where, limit_s = self._address, self._timeout_s
        try:
            return av.open(
                where.text, options=where.options, timeout=(limit_s, limit_s), **_LENIENT
            )
        except (FFmpegError, OSError, ValueError) as error:
            raise ItemError(
                "connection" if where.is_remote else "decoder",
                f"cannot open {self.name!r}: {reason_of_reading(error, limit_s)}"
                + ("" if where.is_remote else "; expected a video that FFmpeg can read"),
            ) from error

    def _video(self, threads: int, most_bytes: int) -> Any:
        pictures = [
            stream
            for stream in self._container.streams.video
            if not stream.disposition & type(stream.disposition).attached_pic
        ]
        if not pictures:
            kinds = ", ".join(  # a video that is left is a picture for the cover
                sorted({_KINDS.get(each.type, each.type) for each in self._container.streams})
            )
            holds = f"it holds {kinds}" if kinds else "it holds nothing"
            raise ItemError("decoder", f"{self.name!r} has no video stream; {holds}")
        stream = self._container.streams.best("video") or pictures[0]
        if stream not in pictures:
            stream = pictures[0]
        if stream.codec_context is None:
            raise ItemError("decoder", f"{self.name!r}: {self._no_decoder()}")
        context = stream.codec_context
        if 3 * context.width * context.height > most_bytes:
            raise too_large(self.name, context.height, context.width, most_bytes)
        # Whatever the header says, no frame takes all memory; sizes are rounded up within.
        context.options = {"max_pixels": str(min(most_bytes // 3 + _MARGIN, _PIXELS_MAX))}
        context.thread_count = threads
        if threads != 1:
            context.thread_type = "AUTO"
        return stream

    def _no_decoder(self) -> str:
        # Without the lines behind the first, which advise options of FFmpeg.
        first = [text.strip().partition("\n")[0] for _, _, text in self._lines]
        said = "; ".join(text for text in first if "codec" in text.lower())
        return "there is no decoder for its video" + (f": {said}" if said else "")

    def _facts(self) -> Facts:
        stream = self._stream
        rate = float(stream.average_rate or stream.guessed_rate or 0)
        frames = stream.frames
        if not frames and rate:
            frames = round(self._length_s() * rate)
        return Facts(max(0, frames), rate, str(stream.codec_context.name))

    @property
    def decoded(self) -> int:
        """How many frames came of the codec so far."""
        return self._decoding.decoded

    @property
    def damage(self) -> Damage:
        """What could not be decoded so far."""
        return self._decoding.damage

    def frames(self, selection: Selection | None = None) -> Iterator[Decoded | None]:
        """Yield the frames in the order they are shown, and None for a packet that is left out.

        Args:
            selection: Which frames; None is yielded for others. Of a file, what is not needed for
                wanted ones is not decoded where their numbers and times are known without.

        Raises:
            ItemError: `decoder`: there is no frame, or the video is given up; `empty`: none of its
                frames is within what is selected.
        """
        decoding = self._decoding
        yield from decoding.frames(selection, self._look())
        if decoding.at_end and self._is_file:
            self._tell_cut()
        was_needed = not decoding.seen or decoding.damage.left_out or (selection and selection.seen)
        if not decoding.decoded and was_needed:
            raise ItemError(
                "decoder",
                f"{self.name!r}: no frame could be decoded ({self.facts.codec})"
                + (f": {decoding.last_error}" if decoding.last_error else "; it holds none"),
            )
        if selection and not selection.seen and not decoding.damage.text(0):
            raise ItemError("empty", f"{self.name!r}: {selection.missed(self._clock.last_s)}")

    def _look(self) -> Look | None:
        """Return what looks into packets, None where all are to be decoded."""
        if not self._is_file:
            return None
        context = self._stream.codec_context
        return look_of(context.codec.canonical_name, context.extradata or b"")

    def _tell_cut(self) -> None:
        """Note that the file ends before its time, where it lacks bytes that it says it has.

        Its header alone is no evidence: many a healthy file has fewer frames than that says.
        """
        seen, said, counted = self._decoding.seen, self.facts.frames, bool(self._stream.frames)
        is_short = seen < said if counted else self._clock.last_s + _SHORT_S < self._length_s()
        if is_short and (missing := missing_nbytes(self._path)):
            of = f"{said:,}" if counted else f"about {said:,}"
            self.damage.end(
                f"ended early: {seen:,} of {of} frames; the file is cut, and lacks "
                f"{missing:,} bytes"
            )

    def _length_s(self) -> float:
        """Return how long the video is to be, as it says; 0 for no idea."""
        stream = self._stream
        length_s = float(stream.duration * stream.time_base) if stream.duration else 0.0
        return length_s or (self._container.duration or 0) / av.time_base

    def close(self) -> None:
        """Close the video. Closing twice is harmless."""
        if self._container is not None:
            self._container.close()
            self._container = None
        self._address.close()
        if self._logs is not None:
            self._logs.__exit__(None, None, None)
            self._logs = None
