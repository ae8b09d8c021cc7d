"""Writes decoded frames into shared memory. Loaded by decoders only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from av.video.reformatter import VideoReformatter

from gepipe.video.camera import Shot
from gepipe.video.upright import Upright

if TYPE_CHECKING:
    from numpy.typing import NDArray


class FrameWriter:
    """Writes frames as BGR into memory of ours, upright."""

    def __init__(self) -> None:
        self._reformatter = VideoReformatter()

    def size(self, picture: Any) -> tuple[int, int]:
        """Return height and width of a frame as it is shown."""
        if _upright(picture).transposed:
            return picture.width, picture.height
        return picture.height, picture.width

    def write(self, picture: Any, memory: NDArray[np.uint8]) -> None:
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
        match _upright(picture):
            case (False, False, False):
                memory[...] = pixels
            case (False, flip_x, flip_y):
                cv2.flip(pixels, -1 if flip_x and flip_y else int(flip_x), dst=memory)
            case (True, True, False):
                cv2.rotate(pixels, cv2.ROTATE_90_CLOCKWISE, dst=memory)
            case (True, False, True):
                cv2.rotate(pixels, cv2.ROTATE_90_COUNTERCLOCKWISE, dst=memory)
            case (True, flip_both, _):
                cv2.transpose(pixels, dst=memory)
                if flip_both:
                    cv2.flip(memory, -1, dst=memory)


def _upright(picture: Any) -> Upright:
    return Upright() if isinstance(picture, Shot) else Upright.of(picture)
