"""Where an operator puts an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Interpolation = Literal["nearest", "linear", "cubic", "area"]


@dataclass(frozen=True)
class Placement:
    """Where an image lands: resized to `size`, then put at `offset` of a canvas.

    Attributes:
        size: Height and width after the resize.
        offset: Row and column of the image's corner on the canvas; negative where cropped.
        canvas: Height and width of the result.
    """

    size: tuple[int, int]
    offset: tuple[int, int]
    canvas: tuple[int, int]
