"""What of a video could not be decoded, told in one sentence however much it is."""

from __future__ import annotations

from typing import Final

_PLACES_MAX: Final = 5


class Damage:
    """Counts what was left out, and where.

    Attributes:
        left_out: Pieces that no frame could be made of, and frames known to be wrong.
        mended: Frames whose decoder filled in parts.
    """

    def __init__(self) -> None:
        self.left_out = self.mended = 0
        self._rejected = 0
        self._places: list[str] = []
        self._more = False
        self._why = ""
        self._end = ""

    def leave_out(self, frame: int, time_s: float, why: str = "") -> None:
        """Note a piece that no frame could be made of: `frame`, or something in front of it."""
        self.left_out += 1
        self._note(frame, time_s, why)

    def reject(self, frame: int, time_s: float, why: str) -> None:
        """Note a frame that the decoder made, but that is known to be wrong."""
        self.drop()
        self.leave_out(frame, time_s, why)

    def drop(self) -> None:
        """Note that a frame came of a piece that was left out, when later ones had been shown."""
        self._rejected += 1

    def mend(self, frame: int, time_s: float, why: str) -> None:
        """Note a frame whose decoder filled in parts."""
        self.mended += 1
        self._note(frame, time_s, why)

    def end(self, why: str) -> None:
        """Note why the video ended before its time."""
        self._end = why

    def _note(self, frame: int, time_s: float, why: str) -> None:
        self._why = self._why or why
        place = f"{frame} ({time_s:.2f} s)"
        if place in self._places[-1:]:
            return
        if len(self._places) < _PLACES_MAX:
            self._places.append(place)
        else:
            self._more = True

    def text(self, frames: int) -> str:
        """Return what happened, empty if nothing did.

        Args:
            frames: How many frames the decoder made in all.
        """
        parts = []
        if self.left_out:
            parts.append(f"{self.left_out:,} damaged {_s(self.left_out, 'piece')} left out")
        if self.mended:
            parts.append(f"{self.mended:,} {_s(self.mended, 'frame')} with parts filled in")
        if self._end:
            parts.append(self._end)
        if not parts:
            return ""
        frames -= self._rejected
        text = f"{frames:,} {_s(frames, 'frame')} decoded; {', '.join(parts)}"
        if self._places:
            text += f"; at {_s(len(self._places), 'frame')} {', '.join(self._places)}"
            text += ", …" if self._more else ""
        return f"{text}: {self._why}" if self._why else text


def _s(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"
