"""From the packets of a video to its frames: numbers, times, damage. Loaded by decoders only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from av.error import ExitError, FFmpegError

from gepipe.video.coded import kind_of
from gepipe.video.concealment import Concealment
from gepipe.video.damage import Damage
from gepipe.video.gops import Gops, Planned
from gepipe.video.lostframes import LostFrames
from gepipe.video.packetkind import PacketKind
from gepipe.video.reasons import reason, reason_of_reading

if TYPE_CHECKING:
    from gepipe.video.clock import Clock
    from gepipe.video.coded import Look
    from gepipe.video.selection import Selection

#: Frames in a row without a later time stamp, behind which a video counts as at its end.
STALLED_MAX: Final = 250
#: Packets in a row that give no frame, behind which a video is given up.
FRUITLESS_MAX: Final = 2000
_READ_ERRORS_MAX: Final = 16


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


class Decoding:
    """One pass over a video.

    Attributes:
        damage: What could not be decoded so far.
        decoded: Frames that came of the codec so far.
        seen: Frames so far, with those that were not decoded.
        at_end: Whether all of the video has been read.
        last_error: What the codec said last.
    """

    def __init__(
        self, container: Any, stream: Any, clock: Clock, lines: list[Any], timeout_s: float
    ) -> None:
        """Decode nothing yet.

        Args:
            container: Where the packets come from.
            stream: Which of its streams.
            clock: Reads the time of frames.
            lines: What FFmpeg says; emptied here.
            timeout_s: How long reading on may take, which is told when it took longer.
        """
        self.damage = Damage()
        self.decoded = self.seen = 0
        self.at_end = False
        self.last_error = ""
        self._container = container
        self._stream = stream
        self._clock = clock
        self._concealment = Concealment(lines)
        self._timeout_s = timeout_s
        self._gops: Gops | None = None
        self._selection: Selection | None = None
        self._is_whole = False  # whether the first packet is where the video begins
        self._lost = LostFrames(None)
        self._fruitless = self._stalled = 0
        self._is_over = False

    def frames(self, selection: Selection | None, look: Look | None) -> Iterator[Decoded | None]:
        """Yield frames in the order they are shown, and None for a packet that is left out.

        Args:
            selection: Which frames; None is yielded for others.
            look: Looks into packets, so that what is not needed is not decoded, if given.
        """
        self._selection = selection
        self._concealment.ignore()  # what was said while the file was opened
        if look is not None:
            self._lost = LostFrames(lambda packet: _holds_frame(packet, look))
        packets = self._packets(look)
        if look is not None and selection is not None and selection.leaves_out:
            self._gops = Gops(packets, lambda each: kind_of(each, look), self._plan)
            packets = self._gops.feed()
        for packet in packets:
            if packet is True:
                yield None
                continue
            self._lost.feed(packet)
            try:
                pictures = packet.decode() if packet else self._flushed()
            except (FFmpegError, ValueError) as error:
                self._concealment.ignore()
                self._fail(packet, reason(error))
                yield None
                if self._fruitless > FRUITLESS_MAX:
                    self._give_up()
                    return
                continue
            self._concealment.hear(packet.pts if packet else None)
            for picture in pictures:
                yield self._frame(picture)
                if self._is_over:
                    return
            if not packet:
                self._lose(self._lost.rest())
        self._lose(self._lost.rest())
        self.at_end = not (self._gops and self._gops.is_over)

    def _frame(self, picture: Any) -> Decoded | None:
        """Return a frame, None if it is not wanted or known to be wrong."""
        self._fruitless = 0
        self.decoded += 1
        gops, clock = self._gops, self._clock
        mended = self._concealment.of(picture.pts)
        if self._lost.is_late(picture.pts):
            self.damage.drop()
            return None
        if picture.pts is not None:
            self._lose(self._lost.came(picture.pts, is_key=picture.key_frame))
        known = gops.planned.pop(picture.pts, None) if gops else None
        if known is not None:
            number, time_s, is_wanted = known
        elif gops and picture.pts in gops.unplanned:
            gops.unplanned.remove(picture.pts)
            return None
        elif gops and gops.is_sure:
            self.damage.reject(self.seen, clock.last_s, "a frame that belongs to no piece")
            return None
        else:
            if gops:
                gops.planned.clear()  # what has not come so far does not come any more
            number, time_s = self.seen, clock.read(picture)
            self.seen += 1
            if self._is_stalled():
                return None
            is_wanted = not picture.is_corrupt and self._selects(time_s)
        if picture.is_corrupt:
            self.damage.reject(number, time_s, mended or "the frame is damaged")
            return None
        if mended:
            self.damage.mend(number, time_s, mended)
        return Decoded(number, time_s, picture) if is_wanted and not self._is_over else None

    def _lose(self, lost: list[tuple[int, str]]) -> None:
        """Note frames that do not come; later ones have the numbers behind them."""
        gops = self._gops
        for pts, why in lost:
            known = gops.planned.pop(pts, None) if gops else None
            if known is not None:
                self.damage.leave_out(known.number, known.time, why)
            elif gops is None or not gops.is_sure:
                self.damage.leave_out(self.seen, self._clock.at(pts), why)
                self.seen += 1

    def _is_stalled(self) -> bool:
        self._stalled = 0 if self._clock.advanced else self._stalled + 1
        if self._stalled < STALLED_MAX:
            return False
        self.damage.end(
            f"given up behind {self._stalled:,} frames in a row without a later time stamp"
        )
        self._is_over = True
        return True

    def _selects(self, time_s: float) -> bool:
        if self._selection is None:
            return True
        self._is_over = self._selection.is_over(time_s)
        return self._selection.takes(time_s)

    def _plan(self, pts: int) -> Planned | None:
        """Return what is known of the next frame; None if it and later ones are not wanted."""
        number, time_s = self.seen, self._clock.at(pts)
        self.seen += 1
        if self._selection is None or self._selection.is_over(time_s):
            return None
        return Planned(number, time_s, self._selection.takes(time_s))

    def _fail(self, packet: Any, why: str) -> None:
        """Take that no frame could be made of a packet."""
        self.last_error = why
        self._fruitless += 1
        pts = packet.pts if packet else None
        if not (self.decoded or self._is_whole or (self._gops and self._gops.is_sure)):
            return  # many a recording begins between two key frames
        if pts is None:
            self.damage.leave_out(self.seen, self._clock.last_s, why)
        else:
            self._lost.fail(pts, why)

    def _give_up(self) -> None:
        self._lose(self._lost.rest())
        if self.decoded:
            self.damage.end(f"given up behind {self._fruitless:,} pieces in a row without a frame")

    def _packets(self, look: Look | None) -> Iterator[Any]:
        """Yield the packets of the video, over errors of reading, and None or an empty one last."""
        errors = 0
        is_first = True
        while True:
            try:
                for packet in self._container.demux(self._stream):
                    errors = 0
                    if is_first:
                        is_first = False
                        self._is_whole = look is not None and _is_first(packet, look)
                    yield packet
            except (FFmpegError, OSError) as error:
                errors += 1
                why = reason_of_reading(error, self._timeout_s)
                self.damage.leave_out(self.seen, self._clock.last_s, why)
                if errors >= _READ_ERRORS_MAX or isinstance(error, OSError | ExitError):
                    self.damage.end(f"cannot be read any further: {why}")
                    yield None
                    return
            else:
                return

    def _flushed(self) -> Any:
        """Return the frames that the codec holds, and have it begin anew."""
        context = self._stream.codec_context
        pictures = context.decode(None)
        context.flush_buffers()
        return pictures


def _holds_frame(packet: Any, look: Look) -> bool:
    """Whether a packet surely holds a frame that is shown."""
    shown = (PacketKind.KEY, PacketKind.FRAME, PacketKind.B_FRAME)
    return not packet.is_discard and kind_of(packet, look) in shown


def _is_first(packet: Any, look: Look) -> bool:
    """Whether a video begins with a packet; of a damaged one, only the container knows."""
    kind, has_index = kind_of(packet, look), packet.is_keyframe or packet.stream.frames
    return kind is PacketKind.KEY or bool(kind is PacketKind.UNSURE and has_index)
