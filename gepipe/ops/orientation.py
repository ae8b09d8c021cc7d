"""Turns pictures upright."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: EXIF orientations whose columns, or rows, run backwards once height and width are in place.
MIRRORED, UPSIDE_DOWN = (2, 3, 6, 7), (3, 4, 7, 8)


def orient(pixels: NDArray[np.uint8], turn: int) -> NDArray[np.uint8]:
    """Turn and mirror a picture upright.

    Args:
        pixels: (height, width, channels).
        turn: EXIF orientation, 1 to 8, that the picture has now.

    Returns:
        The upright picture, contiguous; height and width change places from 5 on.
    """
    if turn == 1:
        return pixels
    if turn >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if turn in MIRRORED:
        pixels = pixels[:, ::-1]
    if turn in UPSIDE_DOWN:
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)
