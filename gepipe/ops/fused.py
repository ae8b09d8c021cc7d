"""The fused forms of the usual image chain. Loaded by workers only.

`FusedImage` stands for decode_image and the geometry operators behind it: a JPEG is decoded at the
smallest scale that still is as large as what it is resized to, crops stay views, and the colour
order is left to the last step. `FusedTensor` stands for normalize, cast and to_tensor: an 8-bit
image has only 256 values, so all arithmetic becomes one table look-up, from the image straight
into the rows of the slot. The operators one by one are the reference: the table is made by running
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from gepipe.ops import codecs, pixels
from gepipe.ops.geometry import Geometry, note
from gepipe.ops.rows import opened
from gepipe.ops.tensor import ToTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.ops.decode import DecodeImage
    from gepipe.ops.op import Meta, Op
    from gepipe.unshaped import UnshapedBuffer

#: A look-up copies bits, so the table may go by any type of the same size that OpenCV knows.
_STAND_IN = {1: np.uint8, 2: np.uint16, 4: np.int32, 8: np.float64}


@dataclass(frozen=True)
class FusedImage:
    """Decodes an image and places it, in as few passes as possible.

    Attributes:
        decode: The decoder.
        steps: Geometry operators behind it.
    """

    decode: DecodeImage
    steps: tuple[Geometry, ...]

    def __call__(self, value: Any, meta: Meta) -> tuple[NDArray[np.uint8], str]:
        """Return the image, (height, width, channels) uint8, maybe a view, and its colour order."""
        picture = codecs.decode(value, self.decode, meta, self._fit)
        image, size = picture.pixels, (picture.height, picture.width)
        for index, step in enumerate(self.steps):
            placement = step.place(*size)
            note(meta, size, placement)
            if index == 0 and image.shape[:2] != size:
                image = pixels.resize_field(image, picture.field, placement.size, step.method)
            image = pixels.place(image, placement, step.method, step.color)
            size = placement.canvas
        return image, picture.order

    @cached_property
    def _fit(self) -> codecs.Fit | None:
        if self.decode.scale == "full" or not self.steps or self.steps[0].method == "nearest":
            return None
        first = self.steps[0]
        # Averaging over areas cannot start at a fraction of a pixel.
        return codecs.Fit(lambda *size: first.place(*size).size, whole=first.method == "area")

    def __getstate__(self) -> dict[str, Any]:
        return {"decode": self.decode, "steps": self.steps}


class FusedTensor:
    """Writes an 8-bit image into its row through a table."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self._ops = tuple(ops)
        self._planar = any(isinstance(op, ToTensor) and op.layout == "nchw" for op in ops)
        self._tables: dict[int, NDArray[Any]] = {}

    def table(self, channels: int) -> NDArray[Any]:
        """Return what the operators make of each of the 256 values.

        Args:
            channels: 1 or 3.

        Returns:
            (channels, 256) in the dtype of the result.

        Raises:
            ItemError: The operators do not fit that number of channels.
        """
        if channels not in self._tables:
            probe = np.repeat(np.arange(256, dtype=np.uint8)[:, None, None], channels, axis=2)
            value: Any = probe
            for op in self._ops:
                value = op(value, {})
            value = value[:, :, 0] if self._planar else value[:, 0, :].T
            self._tables[channels] = np.ascontiguousarray(value)
        return self._tables[channels]

    @staticmethod
    def takes(value: Any) -> bool:
        """Whether the value is an 8-bit grey or colour image that OpenCV reads without a copy."""
        return (
            isinstance(value, np.ndarray)
            and value.dtype == np.uint8
            and value.ndim == 3
            and value.shape[2] in (1, 3)
            and value.strides[2] == 1
            and value.strides[1] == value.shape[2]
            and value.strides[0] >= value.shape[1] * value.shape[2]
        )

    def write(
        self, image: NDArray[np.uint8], name: str, row: NDArray[Any] | UnshapedBuffer, *, swap: bool
    ) -> None:
        """Write an image into its row.

        Args:
            image: (height, width, 1 or 3) as `takes` allows; not modified.
            name: The model's input, for the message.
            row: (channels, height, width) or (height, width, channels), contiguous; overwritten.
                Or room for one of them.
            swap: The image's channels are in the opposite order.

        Raises:
            ItemError: The row has another shape or dtype.
        """
        height, width, channels = image.shape
        table = self.table(channels)
        shape = (channels, height, width) if self._planar else (height, width, channels)
        row = opened(name, row, table.dtype.name, shape)
        if not row.flags.c_contiguous:
            whole = np.empty(shape, row.dtype)
            self.write(image, name, whole, swap=swap)
            row[...] = whole
            return
        stand_in = _STAND_IN[row.dtype.itemsize]
        row, table = row.view(stand_in), table.view(stand_in)
        if self._planar:
            planes = cv2.split(image)
            for channel, plane in enumerate(reversed(planes) if swap else planes):
                cv2.LUT(plane, table[channel], dst=row[channel])
        elif channels == 1:
            cv2.LUT(image, table[0], dst=row)
        else:
            ordered = cv2.cvtColor(image, cv2.COLOR_BGR2RGB) if swap else image
            cv2.LUT(ordered, np.ascontiguousarray(table.T)[:, None, :], dst=row)
