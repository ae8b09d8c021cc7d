"""Writes decoded frames into shared memory. Loaded by decoders only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import cv2
import numpy as np
from av.video.reformatter import VideoReformatter

from gepipe.video.camera import Shot

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TURNS: Final = {
    90: cv2.ROTATE_90_COUNTERCLOCKWISE,
    180: cv2.ROTATE_180,
    270: cv2.ROTATE_90_CLOCKWISE,
}


class Painter:
    """Writes frames as BGR into memory of ours, upright."""

    def __init__(self) -> None:
        self._reformatter = VideoReformatter()

    @staticmethod
    def size(picture: Any) -> tuple[int, int]:
        """Return height and width of a frame as it is shown."""
        if picture.rotation % 180 == 90:
            return picture.width, picture.height
        return picture.height, picture.width

    def paint(self, picture: Any, memory: NDArray[np.uint8]) -> None:
        """Write a frame.

        Args:
            picture: The frame.
            memory: (height, width, 3) uint8 of its size as it is shown; overwritten.
        """
        if isinstance(picture, Shot):
            memory[...] = picture.pixels
            return
        # One thread: the pipeline's processes share the processors already.
        converted = self._reformatter.reformat(picture, format="bgr24", threads=1)
        plane: Any = converted.planes[0]
        height, width = converted.height, converted.width
        rows = np.frombuffer(plane, np.uint8, height * plane.line_size)
        pixels = rows.reshape(height, plane.line_size)[:, : 3 * width].reshape(height, width, 3)
        turn = _TURNS.get(picture.rotation % 360)
        if turn is None:
            memory[...] = pixels
        else:
            cv2.rotate(pixels, turn, dst=memory)
