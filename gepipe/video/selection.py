"""Which frames of a video are wanted."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

#: A frame that comes a hair early, as 1/30 in a time base of milliseconds, is on time.
_EARLY: Final = 1 / 32


@dataclass
class Selection:
    """Chooses frames by their number and time, in the order they are decoded.

    Attributes:
        every: Take each n-th frame only.
        fps: Take at most so many frames a second of video; instead of `every`.
        start_s: Leave out what comes before.
        stop_s: Leave out what comes behind.
        seen: Frames between the two so far.
    """

    every: int = 1
    fps: float | None = None
    start_s: float = 0.0
    stop_s: float = math.inf
    seen: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._slot = -1  # that of the last frame that was taken; each has room for one

    @property
    def leaves_out(self) -> bool:
        """Whether frames may be left out before the last one that is wanted."""
        return self.every > 1 or self.fps is not None or self.start_s > 0

    def takes(self, time_s: float) -> bool:
        """Whether the next frame is wanted."""
        if not self.start_s <= time_s < self.stop_s:
            return False
        self.seen += 1
        if (self.seen - 1) % self.every:
            return False
        if self.fps is None:
            return True
        slot = math.floor((time_s - self.start_s) * self.fps + _EARLY)
        if slot <= self._slot:
            return False
        self._slot = slot
        return True

    def is_over(self, time_s: float) -> bool:
        """Whether no later frame is wanted."""
        return time_s >= self.stop_s

    def missed(self, last_s: float) -> str:
        """Return what to tell of a video none of whose frames is between start and stop.

        Args:
            last_s: Time of the last frame that was looked at.
        """
        if last_s < self.start_s:
            return (
                f"start is {self.start_s:g} s, but its last frame is at {last_s:.2f} s: nothing of "
                "it is taken; expected a start within the video"
            )
        return (
            f"no frame is between start, {self.start_s:g} s, and stop, {self.stop_s:g} s: nothing "
            "of it is taken; expected a longer part"
        )

    def estimate(self, frames: int, rate: float) -> int:
        """Return about how many of `frames` at `rate` a second are wanted; 0 for no idea."""
        if frames <= 0:
            return 0
        if rate > 0:
            length_s = min(frames / rate, self.stop_s) - self.start_s
            frames = max(0, min(frames, round(length_s * rate)))
            if self.fps is not None and self.fps < rate:
                return math.ceil(max(0.0, length_s) * self.fps)
        return -(-frames // self.every)
