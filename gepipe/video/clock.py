"""The times of a video's frames."""

from __future__ import annotations

from fractions import Fraction
from typing import Any


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
        self._last_pts: int | None = None
        self.last_s = -self._step_s
        self.advanced = True

    def read(self, picture: Any) -> float:
        """Return the time of a frame, in seconds from the start of the video."""
        pts = picture.pts if picture.pts is not None else picture.dts
        if pts is None:
            self.last_s += self._step_s
            self.advanced = True
            return self.last_s
        if self._start is None:
            self._start = pts
        self.advanced = self._last_pts is None or pts > self._last_pts
        self._last_pts = pts
        self.last_s = float((pts - self._start) * self._base)
        return self.last_s
