"""Static AIPP: what the hardware does to an image before the model sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gepipe.emulator.om import Aipp

if TYPE_CHECKING:
    from numpy.typing import NDArray


def has_channels_first(shape: Sequence[object]) -> bool:
    """Whether the image of a shape is (batch, channels, height, width)."""
    return shape[1] in (1, 3, 4)


def apply_aipp(
    aipp: Aipp, image: NDArray[np.uint8], dtype: str, *, channels_first: bool
) -> NDArray[Any]:
    """Preprocess a batch.

    Order: swap, crop, colour conversion, (x - mean_chn - min_chn) * var_reci_chn.

    Args:
        aipp: What to do.
        image: (batch, height, width, channels) uint8; flat bytes for YUV420SP_U8.
        dtype: Type of the result.
        channels_first: Whether the graph takes (batch, channels, height, width).
    """
    if aipp.input_format == "YUV420SP_U8":
        image = _unpacked(image, aipp.src_image_size_h, aipp.src_image_size_w)
    elif aipp.input_format == "XRGB8888_U8":
        image = image[..., 1:]
    if aipp.rbuv_swap_switch:
        order = [0, 2, 1] if aipp.input_format == "YUV420SP_U8" else [2, 1, 0]
        image = image[..., order]
    if aipp.crop:
        top, left = aipp.load_start_pos_h, aipp.load_start_pos_w
        image = image[:, top : top + aipp.crop_size_h, left : left + aipp.crop_size_w]
    x = image.astype(np.float32)
    if aipp.csc_switch:
        x = _converted(aipp, x)
    channels = x.shape[-1]
    mean = np.asarray(aipp.mean_chn[:channels], np.float32)
    least = np.asarray(aipp.min_chn[:channels], np.float32)
    factor = np.asarray(aipp.var_reci_chn[:channels], np.float32)
    x = (x - mean - least) * factor
    if channels_first:
        x = x.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(x, dtype=dtype)


def _unpacked(flat: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Return (batch, height, width, 3) YUV of NV12 bytes."""
    planes = flat.reshape(-1, height * 3 // 2, width)
    luma = planes[:, :height, :, None]
    chroma = planes[:, height:].reshape(len(planes), height // 2, width // 2, 2)
    chroma = chroma.repeat(2, axis=1).repeat(2, axis=2)
    return np.concatenate([luma, chroma], axis=3)


def _converted(aipp: Aipp, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Apply the colour matrix, whose numbers are 256 times as large."""
    matrix = np.asarray(aipp.matrix or (256, 0, 0, 0, 256, 0, 0, 0, 256), np.float32).reshape(3, 3)
    bias = np.asarray(aipp.input_bias or (0, 0, 0), np.float32)
    y = np.rint((x - bias) @ matrix.T / 256)
    return np.clip(y, 0, 255).astype(np.float32)
