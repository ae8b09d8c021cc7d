"""Frames of a camera that is attached to this machine. Loaded by decoders only.

By OpenCV: the FFmpeg that comes with PyAV knows files and networks, but no devices.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import cv2

from gepipe.errors import ItemError
from gepipe.video.damage import Damage
from gepipe.video.decoding import Decoded
from gepipe.video.stream import Facts

if TYPE_CHECKING:
    from gepipe.video.selection import Selection


class Camera:
    """An open camera; has the interface of a `VideoStream`.

    Attributes:
        facts: What it says of itself.
        damage: Nothing, ever.
        decoded: Frames so far.
    """

    def __init__(self, path: bytes, *, interface: int = cv2.CAP_V4L2) -> None:
        """Open a camera.

        Args:
            path: Its device, such as `/dev/video0`.
            interface: Which of OpenCV's to use.

        Raises:
            ItemError: `connection`: it cannot be opened.
        """
        self.name = os.fsdecode(path)
        self.damage = Damage()
        self.decoded = 0
        self._capture = cv2.VideoCapture(self.name, interface)
        if not self._capture.isOpened():
            raise ItemError(
                "connection",
                f"cannot open {self.name!r}: no camera answers there; expected a device that this "
                "user may read and nobody else uses",
            )
        self.facts = Facts(0, max(0.0, self._capture.get(cv2.CAP_PROP_FPS)), "camera")

    def frames(self, selection: Selection | None = None) -> Iterator[Decoded | None]:
        """Yield frames as they come, at the time they came, until there is no further one.

        Args:
            selection: Which frames; None is yielded for others.
        """
        began = time.monotonic()
        while True:
            ok, picture = self._capture.read()
            if not ok:
                return
            number, self.decoded = self.decoded, self.decoded + 1
            time_s = time.monotonic() - began
            if selection is not None and selection.is_over(time_s):
                return
            if selection is None or selection.takes(time_s):
                yield Decoded(number, time_s, Shot(picture))
            else:
                yield None

    def close(self) -> None:
        """Close the camera. Closing twice is harmless."""
        self._capture.release()


class Shot:
    """A picture of a camera; for a `FrameWriter` like a frame of a video."""

    def __init__(self, pixels: Any) -> None:
        """Take (height, width, 3) uint8, BGR."""
        self.pixels = pixels
        self.height, self.width = pixels.shape[:2]
