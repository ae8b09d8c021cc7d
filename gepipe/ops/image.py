"""Operators that cut an image out or put it onto a canvas: crop, letterbox, pad.

Sizes are `[height, width]`; one number means a square.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from gepipe.errors import ItemError
from gepipe.ops.geometry import Geometry, Size, pair, positive_size
from gepipe.ops.placement import Interpolation, Placement
from gepipe.tensors import DYNAMIC, TensorSpec, Variants


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
    """Fit an image into a canvas keeping its aspect ratio; fill what remains with one value.

    Give exactly one of `size` and `sizes`. Several sizes are for a model that takes them: an image
    goes onto the smallest canvas that holds it; one that none of them holds, onto that on which it
    shrinks least.

    Attributes:
        size: [height, width] of the result; one number for a square.
        sizes: Sizes of the result to choose from, [[height, width], …].
        fill: Value of the bars, 0 to 255 for an 8-bit image.
        center: Put the image in the middle; otherwise in the top left corner.
        scale_up: Enlarge images that are smaller than the canvas; otherwise only shrink.
        interpolation: nearest, linear, cubic or area.
    """

    shorthand: ClassVar[str | None] = "size"
    size: int | tuple[int, int] | None = None
    sizes: tuple[int | tuple[int, int], ...] = ()
    fill: float = 114
    center: bool = True
    scale_up: bool = True
    interpolation: Interpolation = "linear"

    def __post_init__(self) -> None:
        if (self.size is None) == (not self.sizes):
            raise ValueError("give exactly one of size and sizes")
        _check_sizes(self.size, self.sizes)

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
        canvas = self._canvas(height, width)
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
        """Return `size`, if that was given."""
        return _only(self.size, self.sizes)

    def variants(self, given: Variants | None) -> Variants | None:
        """Return each of the sizes."""
        return _of_sizes(given, self.sizes) if self.sizes else super().variants(given)

    def _canvas(self, height: int, width: int) -> tuple[int, int]:
        if self.size is not None:
            return pair(self.size)
        sizes = [pair(size) for size in self.sizes]
        chosen = _smallest(sizes, height, width)
        return chosen or max(sizes, key=lambda size: min(size[0] / height, size[1] / width))


@dataclass(frozen=True)
class Pad(Geometry):
    """Grow an image by a border, without scaling it.

    Give exactly one of `size`, `sizes` and `border`. Of several sizes, an image grows to the
    smallest that holds it.

    Attributes:
        size: [height, width] of the result; one number for a square. No smaller than the image.
        sizes: Sizes of the result to choose from, [[height, width], …].
        border: Pixels to add [top, bottom, left, right]; one number for all four.
        fill: Value of the border, 0 to 255 for an 8-bit image.
        center: With a size: put the image in the middle; otherwise in the top left corner.
    """

    shorthand: ClassVar[str | None] = "size"
    size: int | tuple[int, int] | None = None
    sizes: tuple[int | tuple[int, int], ...] = ()
    border: int | tuple[int, int, int, int] | None = None
    fill: float = 0
    center: bool = False

    def __post_init__(self) -> None:
        if [self.size is None, not self.sizes, self.border is None].count(False) != 1:
            raise ValueError("give exactly one of size, sizes and border")
        _check_sizes(self.size, self.sizes)
        if self.border is not None and min(self._borders()) < 0:
            raise ValueError(f"border must not be negative, but is {self.border!r}")

    @property
    def color(self) -> float:
        """Value of the border."""
        return self.fill

    def place(self, height: int, width: int) -> Placement:
        """Return the image at its own size on a larger canvas.

        Raises:
            ItemError: The image is larger than that.
        """
        if self.border is not None:
            top, bottom, left, right = self._borders()
            canvas = height + top + bottom, width + left + right
            return Placement((height, width), (top, left), canvas)
        sizes = [pair(size) for size in self.sizes or (self.size or 1,)]
        chosen = _smallest(sizes, height, width)
        if chosen is None:
            which = f"size {list(sizes[0])}" if self.size else f"all sizes {_listed(sizes)}"
            raise ItemError(
                "shape",
                f"pad: the image is {height}x{width} (height x width), larger than {which}; "
                "use letterbox, which also shrinks",
            )
        rest = chosen[0] - height, chosen[1] - width
        offset = (rest[0] // 2, rest[1] // 2) if self.center else (0, 0)
        return Placement((height, width), offset, chosen)

    def fixed_size(self) -> tuple[int, int]:
        """Return `size`, if that was given."""
        return _only(self.size, self.sizes)

    def variants(self, given: Variants | None) -> Variants | None:
        """Return each of the sizes; else what it is given, with its border."""
        return _of_sizes(given, self.sizes) if self.sizes else super().variants(given)

    def _borders(self) -> tuple[int, int, int, int]:
        border = self.border or 0
        if isinstance(border, int):
            return border, border, border, border
        top, bottom, left, right = border
        return top, bottom, left, right


def _check_sizes(size: Size | None, sizes: Sequence[Size]) -> None:
    if size is not None:
        positive_size("size", size)
    for each in sizes:
        positive_size("sizes: each", each)


def _only(size: Size | None, sizes: Sequence[Size]) -> tuple[int, int]:
    """Return the only size, else `DYNAMIC`."""
    if size is None and len({pair(each) for each in sizes}) != 1:
        return DYNAMIC, DYNAMIC
    return pair(sizes[0] if size is None else size)


def _smallest(sizes: Sequence[tuple[int, int]], height: int, width: int) -> tuple[int, int] | None:
    """Return the size of the fewest pixels that holds an image."""
    holding = [size for size in sizes if size[0] >= height and size[1] >= width]
    return min(holding, key=lambda size: (size[0] * size[1], size), default=None)


def _of_sizes(given: Variants | None, sizes: Sequence[Size]) -> Variants | None:
    if given is None:
        return None
    kinds = dict.fromkeys((spec.dtype, (*spec.shape, 1)[2]) for spec in given.specs)
    return Variants(
        tuple(
            TensorSpec("", dtype, (*size, channels))
            for dtype, channels in kinds
            for size in dict.fromkeys(map(pair, sizes))
        ),
        complete=True,
    )


def _listed(sizes: Sequence[tuple[int, int]]) -> str:
    return ", ".join(str(list(size)) for size in sizes)
