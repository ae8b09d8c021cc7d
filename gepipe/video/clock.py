"""The times of a video's frames."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

#: How far a time stamp may be behind the one before, as in a damaged video; one that is further is
#: that of another beginning, as where recordings were put one behind the other.
_DISORDER_S: Final = 1.0


class Clock:
    """Reads the time of frames.

    Attributes:
        last_s: Time of the last frame.
        advanced: Whether that was later than the one before.
    """

    def __init__(self, stream: Any, rate: float) -> None:
        self._base = stream.time_base or Fraction(1)
        self._start = stream.start_time
        self._step_s = 1.0 / rate if rate else 0.04
        self._shift_s = 0.0
        self._last_pts: int | None = None
        self._before_s: float | None = None  # what was before the last jump
        self.last_s = -self._step_s
        self.advanced = True

    def read(self, picture: Any) -> float:
        """Return the time of a frame, in seconds from the start of the video."""
        pts = picture.pts if picture.pts is not None else picture.dts
        if pts is None:
            self.last_s += self._step_s
            self.advanced = True
            return self.last_s
        return self.at(pts)

    def at(self, pts: int) -> float:
        """Return the time of the frame with the next time stamp."""
        if self._start is None:
            self._start = pts
        self.advanced = self._last_pts is None or pts > self._last_pts
        self._last_pts = pts
        self.last_s = self._risen(float((pts - self._start) * self._base) + self._shift_s)
        return self.last_s

    def _risen(self, time_s: float) -> float:
        """Return a time that goes on where time stamps begin anew."""
        before_s, step_s = self._before_s, time_s - self.last_s
        if step_s > _DISORDER_S:
            self._before_s = self.last_s
        elif step_s < -_DISORDER_S:
            self._before_s = None
            # Behind a wrong time stamp that was far ahead, the right ones are no new beginning.
            if before_s is None or not 0 < time_s - before_s < _DISORDER_S:
                self._shift_s += self._step_s - step_s
                return self.last_s + self._step_s
        return time_s
