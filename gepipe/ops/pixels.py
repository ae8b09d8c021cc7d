"""The numeric side of the geometry operators. Loaded by workers only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from gepipe.errors import ItemError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.ops.codecs import Field
    from gepipe.ops.placement import Interpolation, Placement

_METHODS = {
    "nearest": cv2.INTER_NEAREST,
    "linear": cv2.INTER_LINEAR,
    "cubic": cv2.INTER_CUBIC,
    "area": cv2.INTER_AREA,
}
#: Pixels of the result by which its far edge may be off; a resize is faster than a warp.
_UNSEEN = 1 / 16
_WARP_LIMIT = 32_766  # sides that OpenCV can warp
#: OpenCV resizes these as they are; anything else goes through float32 or float64.
_RESIZABLE = frozenset(("uint8", "uint16", "int16", "float32", "float64"))


def as_image(value: Any) -> NDArray[Any]:
    """Return `value` as `(height, width, channels)`; a 2-D array gets one channel.

    Raises:
        ItemError: It is not an image.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        raise ItemError(
            "shape", "got the bytes of a file where an image is needed; put decode_image first"
        )
    image = np.asarray(value)
    if image.ndim == 2:
        image = image[:, :, None]
    if image.ndim != 3 or 0 in image.shape:
        raise ItemError(
            "shape",
            f"got an array {image.dtype} {list(image.shape)} where an image "
            "(height, width, channels) is needed",
        )
    return image


def resize(
    image: NDArray[Any], size: tuple[int, int], interpolation: Interpolation
) -> NDArray[Any]:
    """Resize an image to exactly `size`.

    Args:
        image: (height, width, channels), any dtype. Not modified, returned if it has that size.
        size: Height and width of the result.
        interpolation: How; pixel centres at half-integers, as everywhere in OpenCV.

    Returns:
        (size[0], size[1], channels) of the same dtype.
    """
    if image.shape[:2] == size:
        return image
    kind = image.dtype.name
    if kind not in _RESIZABLE:
        wide = image.astype("float64" if image.dtype.itemsize > 2 else "float32")
        resized = resize(wide, size, interpolation)
        if image.dtype.kind in "iub":
            resized = np.rint(resized)
        whole: NDArray[Any] = resized.astype(image.dtype)
        return whole
    result: NDArray[Any] = cv2.resize(
        image, (size[1], size[0]), interpolation=_METHODS[interpolation]
    )
    return result if result.ndim == 3 else result[:, :, None]  # OpenCV drops a single channel


def resize_field(
    image: NDArray[Any], field: Field, size: tuple[int, int], interpolation: Interpolation
) -> NDArray[Any]:
    """Resize a part of an image whose edges may lie within pixels.

    Args:
        image: (height, width, channels) uint8. Not modified.
        field: The part.
        size: Height and width of the result.
        interpolation: linear or cubic; any, where the part is the whole image.

    Returns:
        (size[0], size[1], channels) uint8.
    """
    excess = (
        (1 - field.height / image.shape[0]) * size[0],
        (1 - field.width / image.shape[1]) * size[1],
    )
    if max(excess) < _UNSEEN or max(image.shape) > _WARP_LIMIT:
        return resize(image, size, interpolation)
    rows, columns = field.height / size[0], field.width / size[1]
    # From the result's pixel centres to the image's.
    matrix = np.array(
        [
            [columns, 0.0, field.left + columns / 2 - 0.5],
            [0.0, rows, field.top + rows / 2 - 0.5],
        ]
    )
    result: NDArray[Any] = cv2.warpAffine(
        image,
        matrix,
        (size[1], size[0]),
        flags=_METHODS[interpolation] | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_REPLICATE,
    )
    return result if result.ndim == 3 else result[:, :, None]


def place(
    image: NDArray[Any], placement: Placement, interpolation: Interpolation, fill: float
) -> NDArray[Any]:
    """Resize an image and put it on a canvas, or cut the canvas out of it.

    Args:
        image: (height, width, channels). Not modified.
        placement: Size, offset and canvas.
        interpolation: How to resize.
        fill: Value where no image lies.

    Returns:
        (canvas height, canvas width, channels) of the same dtype; a view where that suffices.
    """
    resized = resize(image, placement.size, interpolation)
    (height, width), (top, left), canvas = placement.size, placement.offset, placement.canvas
    if top <= 0 and left <= 0 and height + top >= canvas[0] and width + left >= canvas[1]:
        return resized[-top : canvas[0] - top, -left : canvas[1] - left]
    result = np.full((*canvas, image.shape[2]), fill, image.dtype)
    result[top : top + height, left : left + width] = resized
    return result
