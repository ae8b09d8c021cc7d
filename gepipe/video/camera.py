"""Frames of a camera that is attached to this machine. Loaded by decoders only.

By OpenCV: the FFmpeg that comes with PyAV knows files and networks, but no devices.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import cv2

from gepipe.errors import ItemError
from gepipe.video.damage import Damage
from gepipe.video.stream import Decoded, Facts


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

    def frames(self) -> Iterator[Decoded]:
        """Yield the frames as they come, at the time they came, until there is no further one."""
        began = time.monotonic()
        while True:
            ok, picture = self._capture.read()
            if not ok:
                return
            number, self.decoded = self.decoded, self.decoded + 1
            yield Decoded(number, time.monotonic() - began, Shot(picture))

    def close(self) -> None:
        """Close the camera. Closing twice is harmless."""
        self._capture.release()


class Shot:
    """A picture of a camera; for a `FrameWriter` like a frame of a video."""

    def __init__(self, pixels: Any) -> None:
        """Take (height, width, 3) uint8, BGR."""
        self.pixels = pixels
        self.height, self.width = pixels.shape[:2]
