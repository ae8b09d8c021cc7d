"""What a decoder is asked to do."""

from __future__ import annotations

import math
from typing import NamedTuple

from gepipe.video.selection import Selection


class Order(NamedTuple):
    """What a decoder is asked to do. Plain values only.

    Attributes:
        path: The video, as the source names it.
        live: Whether to drop frames for which there is no room, and to connect anew.
        behind: Number of the frame behind which to go on, -1 for none.
        since_s: Time of that frame, which that of the next is later than; for live sources.
        skip: How many of the wanted frames behind that to pass over.
        every: See `Selection`.
        fps: See `Selection`.
        start_s: See `Selection`.
        stop_s: See `Selection`.
        threads: See `VideoStream`.
        timeout_s: See `VideoStream`.
        reconnect: How often in a row to connect anew without a frame.
    """

    path: bytes
    live: bool = False
    behind: int = -1
    since_s: float = 0.0
    skip: int = 0
    every: int = 1
    fps: float | None = None
    start_s: float = 0.0
    stop_s: float = math.inf
    threads: int = 1
    timeout_s: float = 30.0
    reconnect: int = 8

    def selection(self) -> Selection:
        """Return what chooses the frames."""
        return Selection(self.every, self.fps, self.start_s, self.stop_s)
