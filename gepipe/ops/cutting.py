"""Cuts parts out of pictures. The numeric side of `crop`. Loaded by workers only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.ops.outline import Outline


def straight(picture: NDArray[Any], outline: Outline) -> NDArray[Any]:
    """Return the pixels within a straight outline, whose corners are rounded.

    Args:
        picture: (height, width, channels). Not modified.
        outline: Where; outside the picture its edge is repeated.

    Returns:
        (*outline.pixels, channels), a view where the outline lies inside.
    """
    (height, width), (x, y) = outline.pixels, outline.points[0]
    top, left = round(y), round(x)
    bottom, right = top + height, left + width
    if top >= 0 and left >= 0 and bottom <= picture.shape[0] and right <= picture.shape[1]:
        return picture[top:bottom, left:right]
    rows = np.arange(top, bottom).clip(0, picture.shape[0] - 1)
    columns = np.arange(left, right).clip(0, picture.shape[1] - 1)
    part: NDArray[Any] = picture[rows[:, None], columns]
    return part


def rectified(picture: NDArray[Any], outline: Outline) -> NDArray[Any]:
    """Return what four corners enclose, as a rectangle.

    Args:
        picture: (height, width, channels) uint8. Not modified.
        outline: The corners; outside the picture its edge is repeated.

    Returns:
        (*outline.pixels, channels) uint8.
    """
    height, width = outline.pixels
    corners = np.array(outline.points, np.float32)
    target = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    matrix = cv2.getPerspectiveTransform(corners, target)
    result: NDArray[Any] = cv2.warpPerspective(
        picture, matrix, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )
    return result if result.ndim == 3 else result[:, :, None]


def leveled(picture: NDArray[Any], turned: int) -> NDArray[Any]:
    """Return a picture turned back, so that its text runs to the right.

    Args:
        picture: (height, width, channels). Not modified.
        turned: By how many degrees clockwise its text is turned: 90, which runs down, or 270.
    """
    return np.rot90(picture, turned // 90)


def recolored(picture: NDArray[Any]) -> NDArray[Any]:
    """Return a picture with its channels in the opposite order; of one channel, three."""
    if picture.shape[2] == 1:
        return np.repeat(picture, 3, axis=2)
    return np.ascontiguousarray(picture[:, :, ::-1])


def fitted(
    picture: NDArray[Any], inner: tuple[int, int], outer: tuple[int, int], fill: int
) -> NDArray[Any]:
    """Return a picture resized to `inner`, at the top left of a canvas of `outer`.

    Args:
        picture: (height, width, channels) uint8. Not modified.
        inner: Height and width of the picture in the result.
        outer: Height and width of the result.
        fill: Value of the rest.
    """
    if picture.shape[:2] != inner:
        resized: NDArray[Any] = cv2.resize(picture, (inner[1], inner[0]))
        picture = resized if resized.ndim == 3 else resized[:, :, None]
    if inner == outer:
        return picture
    result = np.full((*outer, picture.shape[2]), fill, picture.dtype)
    result[: inner[0], : inner[1]] = picture
    return result
