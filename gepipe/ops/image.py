"""Operators that change the geometry of an image: resize, crop, letterbox, pad.

Sizes are `[height, width]`; one number means a square.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gepipe.errors import ItemError
from gepipe.ops.decode import MAX_PIXELS
from gepipe.ops.geometry import Geometry, Interpolation, Placement, pair, positive_size
from gepipe.tensors import DYNAMIC


@dataclass(frozen=True)
class Resize(Geometry):
    """Resize an image to an exact size, or by one of its sides keeping the aspect ratio.

    Give exactly one of `size`, `short_side`, `long_side`. The other side is rounded to the nearest
    pixel.

    Attributes:
        size: [height, width] of the result; one number for a square. Does not keep the ratio.
        short_side: Length in pixels of the shorter side of the result.
        long_side: Length in pixels of the longer side of the result.
        interpolation: nearest, linear, cubic or area (averages; best for large reductions).
    """

    shorthand: ClassVar[str | None] = "size"
    size: int | tuple[int, int] | None = None
    short_side: int | None = None
    long_side: int | None = None
    interpolation: Interpolation = "linear"

    def __post_init__(self) -> None:
        given = [name for name in ("size", "short_side", "long_side") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError("give exactly one of size, short_side, long_side")
        positive_size(given[0], getattr(self, given[0]))

    @property
    def method(self) -> Interpolation:
        """How pixels are interpolated."""
        return self.interpolation

    def place(self, height: int, width: int) -> Placement:
        """Return the whole image at its new size.

        Raises:
            ItemError: It is so narrow that keeping its aspect ratio makes it enormous.
        """
        if self.size is not None:
            target = pair(self.size)
        else:
            side = self.short_side or self.long_side or 1
            ratio = side / (min if self.short_side else max)(height, width)
            target = max(1, round(height * ratio)), max(1, round(width * ratio))
            # Of a strip one pixel high, a file of 300 bytes, this would be gigabytes.
            if target[0] * target[1] > max(MAX_PIXELS, height * width):
                raise ItemError(
                    "too_large",
                    f"resize: the image of {height}x{width} (height x width) would become "
                    f"{target[0]}x{target[1]}, over the limit of {MAX_PIXELS:,} pixels; "
                    "use letterbox for images as narrow as that",
                )
        return Placement(target, (0, 0), target)

    def fixed_size(self) -> tuple[int, int]:
        """Return `size`, if that was given."""
        return (DYNAMIC, DYNAMIC) if self.size is None else pair(self.size)


@dataclass(frozen=True)
class CenterCrop(Geometry):
    """Cut a rectangle out of the middle of an image.

    Attributes:
        size: [height, width] of the rectangle; one number for a square.
    """

    shorthand: ClassVar[str | None] = "size"
    size: int | tuple[int, int]

    def __post_init__(self) -> None:
        positive_size("size", self.size)

    def place(self, height: int, width: int) -> Placement:
        """Return the middle; an odd remainder goes to the bottom and the right.

        Raises:
            ItemError: The image is smaller than the rectangle.
        """
        target = pair(self.size)
        if target[0] > height or target[1] > width:
            raise ItemError(
                "shape",
                f"center_crop: the image is {height}x{width} (height x width), smaller than "
                f"size {list(target)}; put a resize with a larger short_side before it, "
                "or use letterbox",
            )
        offset = -((height - target[0]) // 2), -((width - target[1]) // 2)
        return Placement((height, width), offset, target)

    def fixed_size(self) -> tuple[int, int]:
        """Return `size`."""
        return pair(self.size)


@dataclass(frozen=True)
class Letterbox(Geometry):
    """Fit an image into a fixed size keeping its aspect ratio; fill what remains with one value.

    Attributes:
        size: [height, width] of the result; one number for a square.
        fill: Value of the bars, 0 to 255 for an 8-bit image.
        center: Put the image in the middle; otherwise in the top left corner.
        scale_up: Enlarge images that are smaller than `size`; otherwise only shrink.
        interpolation: nearest, linear, cubic or area.
    """

    shorthand: ClassVar[str | None] = "size"
    size: int | tuple[int, int]
    fill: float = 114
    center: bool = True
    scale_up: bool = True
    interpolation: Interpolation = "linear"

    def __post_init__(self) -> None:
        positive_size("size", self.size)

    @property
    def method(self) -> Interpolation:
        """How pixels are interpolated."""
        return self.interpolation

    @property
    def color(self) -> float:
        """Value of the bars."""
        return self.fill

    def place(self, height: int, width: int) -> Placement:
        """Return the largest fit; an odd remainder goes to the bottom and the right."""
        canvas = pair(self.size)
        ratio = min(canvas[0] / height, canvas[1] / width)
        if not self.scale_up:
            ratio = min(ratio, 1.0)
        size = (
            min(canvas[0], max(1, round(height * ratio))),
            min(canvas[1], max(1, round(width * ratio))),
        )
        offset = ((canvas[0] - size[0]) // 2, (canvas[1] - size[1]) // 2) if self.center else (0, 0)
        return Placement(size, offset, canvas)

    def fixed_size(self) -> tuple[int, int]:
        """Return `size`."""
        return pair(self.size)


@dataclass(frozen=True)
class Pad(Geometry):
    """Grow an image by a border, without scaling it.

    Give exactly one of `size` and `border`.

    Attributes:
        size: [height, width] of the result; one number for a square. No smaller than the image.
        border: Pixels to add [top, bottom, left, right]; one number for all four.
        fill: Value of the border, 0 to 255 for an 8-bit image.
        center: With `size`: put the image in the middle; otherwise in the top left corner.
    """

    shorthand: ClassVar[str | None] = "size"
    size: int | tuple[int, int] | None = None
    border: int | tuple[int, int, int, int] | None = None
    fill: float = 0
    center: bool = False

    def __post_init__(self) -> None:
        if (self.size is None) == (self.border is None):
            raise ValueError("give exactly one of size and border")
        if self.size is not None:
            positive_size("size", self.size)
        elif min(self._borders()) < 0:
            raise ValueError(f"border must not be negative, but is {self.border!r}")

    @property
    def color(self) -> float:
        """Value of the border."""
        return self.fill

    def place(self, height: int, width: int) -> Placement:
        """Return the image at its own size on a larger canvas.

        Raises:
            ItemError: The image is larger than `size`.
        """
        if self.size is None:
            top, bottom, left, right = self._borders()
            canvas = height + top + bottom, width + left + right
            return Placement((height, width), (top, left), canvas)
        canvas = pair(self.size)
        if canvas[0] < height or canvas[1] < width:
            raise ItemError(
                "shape",
                f"pad: the image is {height}x{width} (height x width), larger than size "
                f"{list(canvas)}; use letterbox, which also shrinks",
            )
        offset = ((canvas[0] - height) // 2, (canvas[1] - width) // 2) if self.center else (0, 0)
        return Placement((height, width), offset, canvas)

    def fixed_size(self) -> tuple[int, int]:
        """Return `size`, if that was given."""
        return (DYNAMIC, DYNAMIC) if self.size is None else pair(self.size)

    def _borders(self) -> tuple[int, int, int, int]:
        border = self.border or 0
        if isinstance(border, int):
            return border, border, border, border
        top, bottom, left, right = border
        return top, bottom, left, right
