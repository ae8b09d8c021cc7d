"""Operators that change the geometry of an image: resize, crop, letterbox, pad.

All take and return `(height, width, channels)` arrays, and all sizes are `[height, width]`; one
number means a square. Each keeps `meta["scale"]` and `meta["pad"]` up to date, both `[y, x]`, so
that a point found in the result maps back to the original exactly: `(point - pad) / scale`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gepipe.errors import ItemError
from gepipe.ops.op import Meta, Op
from gepipe.tensors import DYNAMIC, TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

Interpolation = Literal["nearest", "linear", "cubic", "area"]
Size = int | tuple[int, int]


def pair(size: Size) -> tuple[int, int]:
    """Return `(height, width)`; one number is a square."""
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def positive_size(name: str, size: Size) -> None:
    """Raise ValueError unless `size` is one or two positive numbers."""
    values = [size] if isinstance(size, int) else list(size)
    if len(values) not in (1, 2) or any(value < 1 for value in values):
        raise ValueError(f"{name} must be one positive number or [height, width], not {size!r}")


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


@dataclass(frozen=True)
class Geometry(Op):
    """An operator that is fully described by where it places an image of a given size."""

    def place(self, height: int, width: int) -> Placement:
        """Return where an image of that size lands. Pure arithmetic.

        Raises:
            ItemError: The image cannot be placed, such as a crop larger than the image.
        """
        raise NotImplementedError

    def __call__(self, value: Any, meta: Meta) -> NDArray[Any]:
        """Place the image `(height, width, channels)`, keeping its dtype."""
        from gepipe.ops import pixels

        image = pixels.as_image(value)
        placement = self.place(image.shape[0], image.shape[1])
        note(meta, image.shape[:2], placement)
        return pixels.place(image, placement, self.method, self.color)

    @property
    def method(self) -> Interpolation:
        """How pixels are interpolated."""
        return "linear"

    @property
    def color(self) -> float:
        """Value of the canvas where no image lies."""
        return 0.0

    def output_spec(self, spec: TensorSpec | None) -> TensorSpec | None:
        """Return the placed image's shape, -1 where it depends on the item."""
        if spec is None or len(spec.shape) not in (2, 3):
            return None
        height, width, channels = (*spec.shape, 1)[:3]
        if DYNAMIC not in (height, width):
            try:
                height, width = self.place(height, width).canvas
            except ItemError:
                return None
        else:
            height, width = self.fixed_size()
        return TensorSpec("", spec.dtype, (height, width, channels))

    def fixed_size(self) -> tuple[int, int]:
        """Return the result's size where it is the same for every image, else -1."""
        return DYNAMIC, DYNAMIC


def note(meta: Meta, before: tuple[int, ...], placement: Placement) -> None:
    """Fold a placement into the item's map from original to result."""
    meta.setdefault("height", before[0])
    meta.setdefault("width", before[1])
    scale, pad = meta.get("scale", [1.0, 1.0]), meta.get("pad", [0.0, 0.0])
    ratio = (placement.size[0] / before[0], placement.size[1] / before[1])
    meta["scale"] = [scale[0] * ratio[0], scale[1] * ratio[1]]
    meta["pad"] = [
        pad[0] * ratio[0] + placement.offset[0],
        pad[1] * ratio[1] + placement.offset[1],
    ]


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
        """Return the whole image at its new size."""
        if self.size is not None:
            target = pair(self.size)
        else:
            side = self.short_side or self.long_side or 1
            ratio = side / (min if self.short_side else max)(height, width)
            target = max(1, round(height * ratio)), max(1, round(width * ratio))
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
