"""Which frames of a video are wanted."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Selection:
    """Chooses frames by their number and time, in the order they are decoded.

    Attributes:
        every: Take each n-th frame only.
        fps: Take at most so many frames a second of video.
        start_s: Leave out what comes before.
        stop_s: Leave out what comes behind.
    """

    every: int = 1
    fps: float | None = None
    start_s: float = 0.0
    stop_s: float = math.inf

    def __post_init__(self) -> None:
        self._due_s = self.start_s
        self._seen = 0

    def takes(self, time_s: float) -> bool:
        """Whether the next frame is wanted."""
        if not self.start_s <= time_s < self.stop_s:
            return False
        self._seen += 1
        if (self._seen - 1) % self.every:
            return False
        if self.fps is None:
            return True
        # A frame that comes a hair early, as 1/30 in a time base of milliseconds, is on time.
        if time_s + 0.25 / self.fps / 8 < self._due_s:
            return False
        steps = math.floor((time_s - self._due_s) * self.fps + 0.04) + 1
        self._due_s += max(1, steps) / self.fps
        return True

    def is_over(self, time_s: float) -> bool:
        """Whether no later frame is wanted."""
        return time_s >= self.stop_s

    def estimate(self, frames: int, rate: float) -> int:
        """Return about how many of `frames` at `rate` a second are wanted; 0 for no idea."""
        if frames <= 0:
            return 0
        if rate > 0:
            length_s = min(frames / rate, self.stop_s) - self.start_s
            frames = max(0, min(frames, round(length_s * rate)))
            if self.fps is not None and self.fps < rate / self.every:
                return math.ceil(max(0.0, length_s) * self.fps)
        return -(-frames // self.every)
