"""An MP4 while it is being made: H.264 that browsers play, with the time stamps of the source.

For the encoder process only.
"""

from __future__ import annotations

import errno
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import av
import cv2

from gepipe.errors import GepipeError, reason_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

#: Encoders that write what MP4 takes, best first. PyAV's own wheels have the first one.
_ENCODERS: Final = ("libx264", "libopenh264", "mpeg4")
#: Ticks of a second. All usual frame rates fit to a few microseconds. MPEG-4 knows 16 bits only.
_CLOCK: Final = 90_000
_CLOCK_MPEG4: Final = 30_000
#: The longest that a frame is shown: times between two are 31 bits in MP4.
_PAUSE_MAX_S: Final = 6 * 3600
#: How far a time may be behind the one before; where it is further, times begin anew.
_DISORDER_S: Final = 1.0
#: How long the only frame of a film is shown, in seconds.
_ONE_FRAME_S: Final = 0.04
#: What H.264 takes at most; larger pictures are made smaller.
_SIDE_MAX: Final = 16_384
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Encoder threads. More of them gain little at these presets, and each holds frames.
_THREADS_MAX: Final = 4
_MPEG: Final = 1  # AVCOL_RANGE_MPEG: what `cvtColor` makes
_BT709: Final = 1  # AVCOL_PRI_BT709 and AVCOL_TRC_BT709: those of sRGB pictures
_SMPTE170M: Final = 6  # AVCOL_SPC_SMPTE170M: the matrix of `cvtColor`


@dataclass(frozen=True)
class Quality:
    """How to encode.

    Attributes:
        crf: Constant rate factor of x264, 0 (lossless) to 51.
        preset: Of x264: how much work to put into a small file.
    """

    crf: int
    preset: str


def chosen_encoder(names: tuple[str, ...] = _ENCODERS) -> str:
    """Return the best encoder that this PyAV has.

    Raises:
        GepipeError: It has none.
    """
    for name in names:
        if name in av.codecs_available:
            with suppress(av.error.FFmpegError, ValueError):
                av.Codec(name, "w")
                return name
    raise GepipeError(
        f"PyAV {av.__version__} has no encoder for MP4; expected one of {', '.join(names)}; "
        "install the wheel of PyPI (pip install av)"
    )


class Film:
    """One MP4, which appears under its name when it is whole.

    Args:
        place: Where it is to appear.
        part: Where it is made meanwhile, relative to the current folder: the library takes some
            names for addresses.
        quality: How to encode.
        encoder: See `chosen_encoder`.
    """

    def __init__(self, place: Path, part: str, quality: Quality, encoder: str) -> None:
        self._place = place
        self._part = part
        self._quality = quality
        self._encoder = encoder
        self._size = (0, 0)
        self._begin = 0.0
        self._last = -1
        self._clock = _CLOCK_MPEG4 if encoder == "mpeg4" else _CLOCK
        self._first: int | None = None  # time stamp of decoding of the first packet
        self._step = 0  # the smallest one between two frames: how long the last one is shown
        self._count = 0
        self._stream: Any = None
        self._container: Any = None

    def add(self, picture: NDArray[np.uint8], time_s: float) -> None:
        """Append a picture.

        Args:
            picture: (height, width, 3) uint8, BGR; not needed any more on return. One that is of
                another size than the film's first is scaled, as is a first one of an enormous size.
            time_s: When the source shows it. A film begins with its first picture.

        Raises:
            GepipeError: It cannot be encoded or written.
        """
        frame = self._frame(picture)
        ticks = self._ticks(time_s)
        if 0 <= self._last < ticks:
            self._step = min(self._step or ticks - self._last, ticks - self._last)
        frame.pts = ticks
        frame.time_base = Fraction(1, self._clock)
        self._last = ticks
        self._count += 1
        try:
            packets = self._stream.encode(frame)
            if packets and self._first is None:
                self._first = packets[0].dts
            self._container.mux(packets)
        except (av.error.FFmpegError, OSError, ValueError) as error:
            raise self._failed(error) from error

    def _ticks(self, time_s: float) -> int:
        """Return when a picture is shown, which is later than the one before, and not too late."""
        if not self._count:
            self._begin = time_s
            return 0
        step_s = time_s - self._begin - self._last / self._clock
        if step_s > _PAUSE_MAX_S:
            self._begin += step_s - _PAUSE_MAX_S
        elif step_s < -_DISORDER_S:
            self._begin += step_s - (self._step / self._clock or _ONE_FRAME_S)
        return max(self._last + 1, round((time_s - self._begin) * self._clock))

    def finish(self) -> None:
        """Complete the file and put it into its place.

        Raises:
            GepipeError: It cannot be written, or is not whole.
        """
        try:
            packets = self._stream.encode(None)
            if packets:  # the muxer adds up the time stamps of decoding; films end with showing
                end = self._last + (self._step or round(_ONE_FRAME_S * self._clock))
                first = packets[0].dts if self._first is None else self._first
                packets[-1].duration = max(1, end - (packets[-1].dts - first))
            self._container.mux(packets)
            self._container.close()
            with av.open(self._part) as container:
                found = container.streams.video[0].frames
            if found != self._count:
                raise GepipeError(
                    f"cannot write {str(self._place)!r}: it holds {found:,} of {self._count:,} "
                    "frames; run again with --resume"
                )
            with Path(self._part).open("rb") as file:
                os.fsync(file.fileno())
            Path(self._part).replace(self._place)
        except (av.error.FFmpegError, OSError, ValueError) as error:
            raise self._failed(error) from error

    def drop(self) -> None:
        """Let go of a film that will not be whole."""
        if self._container is not None:
            with suppress(av.error.FFmpegError, OSError, ValueError):
                self._container.close()
        Path(self._part).unlink(missing_ok=True)

    def _frame(self, picture: NDArray[np.uint8]) -> Any:
        height, width = picture.shape[:2]
        if self._container is None:
            scale = min(1.0, _SIDE_MAX / max(height, width))
            height, width = max(1, int(height * scale)), max(1, int(width * scale))
            self._size = (height + height % 2, width + width % 2)
            self._open()
        if picture.shape[:2] != self._size:
            picture = _fitted(picture, *self._size)
        # As I420, which is what the encoder takes; twice as fast as the scaler of FFmpeg.
        planes = cv2.cvtColor(picture, cv2.COLOR_BGR2YUV_I420)
        frame = av.VideoFrame.from_ndarray(planes, format="yuv420p")
        frame.color_range = _MPEG
        frame.colorspace = _SMPTE170M
        return frame

    def _open(self) -> None:
        height, width = self._size
        options = {}
        try:
            self._container = av.open(
                self._part, "w", format="mp4", options={"movflags": "+faststart"}
            )
            stream = self._container.add_stream(self._encoder, rate=25)
            context = stream.codec_context
            if self._encoder == "libx264":
                options = {"crf": str(self._quality.crf), "preset": self._quality.preset}
            else:  # no constant quality: about what x264 needs for it
                share = 2 ** ((23 - self._quality.crf) / 6)
                context.bit_rate = round(height * width * 25 * 0.12 * share)
                _warn_of(self._encoder)
            stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
            context.time_base = stream.time_base = Fraction(1, self._clock)
            context.color_range, context.colorspace = _MPEG, _SMPTE170M
            context.color_primaries = context.color_trc = _BT709
            context.thread_count = min(_THREADS_MAX, len(os.sched_getaffinity(0)))
            stream.options = options
            context.open()
        except (av.error.FFmpegError, OSError, ValueError) as error:
            raise self._failed(error) from error
        self._stream = stream

    def _failed(self, error: Exception) -> GepipeError:
        why = reason_of(error)
        height, width = self._size
        hint = "run again with --resume"
        if getattr(error, "errno", None) in _FULL:
            hint = "make room and run again with --resume"
        return GepipeError(
            f"cannot write {str(self._place)!r} ({width}x{height}, {self._encoder}): {why}; {hint}"
        )


def _fitted(picture: NDArray[np.uint8], height: int, width: int) -> Any:
    """Return a picture of the film's size: one pixel more of the edge, or scaled and centred."""
    below, right = height - picture.shape[0], width - picture.shape[1]
    if 0 <= below <= 1 and 0 <= right <= 1:
        return cv2.copyMakeBorder(picture, 0, below, 0, right, cv2.BORDER_REPLICATE)
    scale = min(height / picture.shape[0], width / picture.shape[1])
    size = (max(1, round(picture.shape[1] * scale)), max(1, round(picture.shape[0] * scale)))
    scaled = cv2.resize(picture, size, interpolation=cv2.INTER_AREA)
    top, left = (height - size[1]) // 2, (width - size[0]) // 2
    sides = (top, height - size[1] - top, left, width - size[0] - left)
    return cv2.copyMakeBorder(scaled, *sides, cv2.BORDER_CONSTANT)


_warned: set[str] = set()


def _warn_of(encoder: str) -> None:
    if encoder in _warned:
        return
    _warned.add(encoder)
    plays = "" if encoder == "libopenh264" else ": players show it, most browsers do not"
    log.warning("this PyAV has no libx264; films are encoded by %s%s", encoder, plays)
