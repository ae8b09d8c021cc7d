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
from gepipe.video.damage import Damage
from gepipe.video.videostate import too_large

#: Frames in a row without a later time stamp, behind which a video counts as at its end.
STALLED_MAX: Final = 250
#: Pieces in a row that give no frame, behind which a video is given up.
FRUITLESS_MAX: Final = 2000
_KINDS: Final = {"video": "an attached picture"}
_READ_ERRORS_MAX: Final = 16
_MARGIN: Final = 1 << 20
_PIXELS_MAX: Final = 2**31 - 1
#: What FFmpeg's decoders say where they fill in what they could not decode.
_MENDED: Final = ("concealing ", "error while decoding", "ignoring overflow")


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


class Decoded(NamedTuple):
    """A frame as the codec made it.

    Attributes:
        frame: Number of the frame, counted from 0.
        time: Seconds from the start of the video.
        picture: The frame; of a camera a `Shot`.
    """

    frame: int
    time: float
    picture: Any


class VideoStream:
    """An open video.

    Attributes:
        facts: What it says of itself.
        damage: What could not be decoded so far.
        decoded: Frames so far.
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
        self.damage = Damage()
        self.decoded = 0
        self._container: Any = None
        self._address = Address.of(path, live=live)
        self._logs = av.logging.Capture(local=False)
        av.logging.set_level(av.logging.INFO)
        self._lines = self._logs.__enter__()
        self._timeout_s = timeout_s
        try:
            self._container = self._opened()
            self._stream = self._video(threads, most_bytes)
        except BaseException:
            self.close()
            raise
        self.facts = self._facts()
        self._clock = Clock(self._stream, self.facts.rate)

    def _opened(self) -> Any:
        where, limit_s = self._address, self._timeout_s
        try:
            # A title in another encoding is no reason not to see the pictures.
            return av.open(
                where.text,
                options=where.options,
                timeout=(limit_s, limit_s),
                metadata_errors="replace",
            )
        except (FFmpegError, OSError, ValueError) as error:
            raise ItemError(
                "connection" if where.is_remote else "decoder",
                f"cannot open {self.name!r}: {self._reason(error)}"
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
        said = "; ".join(text.strip() for _, _, text in self._lines if "codec" in text.lower())
        return "there is no decoder for its video" + (f": {said}" if said else "")

    def _facts(self) -> Facts:
        stream = self._stream
        rate = float(stream.average_rate or stream.guessed_rate or 0)
        frames = stream.frames
        if not frames and rate:
            length = stream.duration and float(stream.duration * stream.time_base)
            length = length or (self._container.duration or 0) / av.time_base
            frames = round(length * rate)
        return Facts(max(0, frames), rate, str(stream.codec_context.name))

    def frames(self) -> Iterator[Decoded | None]:
        """Yield the frames in the order they are shown, and None for a piece that is left out.

        Raises:
            ItemError: `decoder`: there is no frame, or the video is given up.
        """
        clock = self._clock
        fruitless = stalled = 0
        last_error = ""
        for packet in self._packets():
            try:
                pictures = packet.decode() if packet is not None else self._flushed()
            except (FFmpegError, ValueError) as error:
                last_error = reason(error)
                fruitless += 1
                if self.decoded:
                    self.damage.leave_out(self.decoded, clock.last_s, last_error)
                if fruitless > FRUITLESS_MAX:
                    break
                yield None
                continue
            mended = self._mended()
            for picture in pictures:
                fruitless = 0
                number, self.decoded = self.decoded, self.decoded + 1
                time_s = clock.read(picture)
                stalled = 0 if clock.advanced else stalled + 1
                if stalled >= STALLED_MAX:
                    self.damage.end(
                        f"given up behind {stalled:,} frames in a row without a later time stamp"
                    )
                    return
                if picture.is_corrupt:
                    self.damage.leave_out(number, time_s, mended or "the frame is damaged")
                    yield None
                    continue
                if mended:
                    self.damage.mend(number, time_s, mended)
                    mended = ""
                yield Decoded(number, time_s, picture)
        if not self.decoded:
            raise ItemError(
                "decoder",
                f"{self.name!r}: no frame could be decoded ({self.facts.codec})"
                + (f": {last_error}" if last_error else "; it holds none"),
            )
        if fruitless > FRUITLESS_MAX:
            self.damage.end(f"given up behind {fruitless:,} pieces in a row without a frame")

    def _packets(self) -> Iterator[Any]:
        """Yield the packets of the video, over errors of reading, and None or an empty one last."""
        errors = 0
        while True:
            try:
                for packet in self._container.demux(self._stream):
                    errors = 0
                    yield packet
            except (FFmpegError, OSError) as error:
                errors += 1
                why = self._reason(error)
                self.damage.leave_out(self.decoded, self._clock.last_s, why)
                if errors >= _READ_ERRORS_MAX or isinstance(error, OSError | av.error.ExitError):
                    self.damage.end(f"cannot be read any further: {why}")
                    yield None
                    return
            else:
                return

    def _reason(self, error: BaseException) -> str:
        """Return why something could not be read."""
        if isinstance(error, av.error.ExitError):  # by the limit of time
            return f"nothing came for {self._timeout_s:g} s"
        return reason(error)

    def _flushed(self) -> Any:
        return self._stream.codec_context.decode(None)

    def _mended(self) -> str:
        """Return what the decoder says of parts that it filled in, since the last call."""
        if not self._lines:
            return ""
        said = [text.strip() for _, _, text in self._lines if text.lstrip().startswith(_MENDED)]
        self._lines.clear()
        return said[0] if said else ""

    def close(self) -> None:
        """Close the video. Closing twice is harmless."""
        if self._container is not None:
            self._container.close()
            self._container = None
        self._address.close()
        if self._logs is not None:
            self._logs.__exit__(None, None, None)
            self._logs = None


def reason(error: BaseException) -> str:
    """Return what FFmpeg says, without its numbers."""
    text = str(getattr(error, "strerror", None) or error)
    log = getattr(error, "log", None)
    if log:
        text = f"{text} ({log[2].strip()})"
    return " ".join(without_password(text).split())[:300].lower().rstrip(".")
