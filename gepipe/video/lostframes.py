"""Frames that do not come, once a packet of a video could not be decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

#: Packets that a decoder may have taken before it shows a frame.
_DELAY_MAX: Final = 32


class LostFrames:
    """Tells which packets gave no frame, though no decoder may have said so.

    A packet that fails costs others their frames, such as all up to the next key frame, and some
    decoders drop those without a word, or show them when it is too late. So from a failure up to a
    key frame each packet that surely holds a frame is awaited; once a later frame is shown, those
    before it do not come any more.
    """

    def __init__(self, is_frame: Callable[[Any], bool] | None) -> None:
        """Await nothing yet.

        Args:
            is_frame: Whether a packet surely holds a frame; None if nobody knows.
        """
        self._is_frame = is_frame
        self._recent: list[Any] = []  # packets whose frames are still to be shown
        self._awaited: dict[int, str] = {}  # by time stamp, with what is known of the reason
        self._given_up: set[int] = set()
        self._last: int | None = None

    def feed(self, packet: Any) -> None:
        """Take a packet that is about to be decoded."""
        if self._is_frame is None or not packet or packet.pts is None:
            return
        if not self._awaited:
            self._recent.append(packet)
            del self._recent[:-_DELAY_MAX]
        elif self._is_frame(packet):
            self._awaited.setdefault(packet.pts, "")

    def fail(self, pts: int, why: str) -> None:
        """Take that the packet with this time stamp could not be decoded."""
        for packet in self._recent:
            if self._is_frame is not None and self._is_frame(packet):
                self._awaited[packet.pts] = ""
        self._recent.clear()
        self._awaited[pts] = why

    def is_late(self, pts: int | None) -> bool:
        """Whether a frame comes that was given up."""
        return pts in self._given_up

    def came(self, pts: int, *, is_key: bool) -> list[tuple[int, str]]:
        """Take that a frame is shown; return time stamps and reasons of what was lost before it."""
        if self._last is not None and pts < self._last:
            # Time stamps that are not those of the frames, as in AVI files with B-frames, or that
            # begin anew, as where recordings were put one behind the other.
            self._is_frame = None
            self._awaited = {each: why for each, why in self._awaited.items() if why}
            self._given_up.clear()
        self._last = pts
        self._recent = [packet for packet in self._recent if packet.pts > pts]
        self._awaited.pop(pts, None)
        lost = sorted(item for item in self._awaited.items() if item[0] < pts)
        for each, _ in lost:
            del self._awaited[each]
        if is_key and not any(self._awaited.values()):
            self._awaited.clear()
            self._given_up.clear()
        self._given_up.update(each for each, _ in lost)
        return lost

    def rest(self) -> list[tuple[int, str]]:
        """Take that no further frame is shown; return what was lost, as above."""
        lost = sorted(self._awaited.items())
        self._awaited.clear()
        self._recent.clear()
        return lost
