"""What operators that place an image have in common, and the map back to the original.

All take and return `(height, width, channels)` arrays, and all sizes are `[height, width]`; one
number means a square. Each keeps `meta["scale"]` and `meta["pad"]` up to date, both `[y, x]`, so
that a point found in the result maps back to the original exactly: `(point - pad) / scale`.
`meta["canvas"]` is the size of the result.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gepipe.errors import ConfigError, ItemError
from gepipe.ops.op import Meta, Op
from gepipe.ops.placement import Interpolation, Placement
from gepipe.tensors import DYNAMIC, UNKNOWN, TensorSpec, Variants

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
class Geometry(Op):
    """An operator that is fully described by where it places an image of a given size."""

    @abstractmethod
    def place(self, height: int, width: int) -> Placement:
        """Return where an image of that size lands. Pure arithmetic.

        Raises:
            ItemError: The image cannot be placed, such as a crop larger than the image.
        """

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
        """Return the placed image's shape, -1 where it depends on the item.

        Of an image of which nothing is known, such as a function of the user's returns, the size
        may be known, but neither the type nor the channels.

        Raises:
            ConfigError: No image of the size that it is given can be placed.
        """
        if spec is None:
            size = self.fixed_size()
            return None if DYNAMIC in size else TensorSpec("", UNKNOWN, (*size, DYNAMIC))
        if len(spec.shape) not in (2, 3):
            return None
        height, width, channels = (*spec.shape, 1)[:3]
        if DYNAMIC not in (height, width):
            try:
                height, width = self.place(height, width).canvas
            except ItemError as error:
                raise ConfigError(str(error)) from error
        else:
            height, width = self.fixed_size()
        return TensorSpec("", spec.dtype, (height, width, channels))

    def variants(self, given: Variants | None) -> Variants | None:
        """Return what becomes of the largest; of what sides are multiples is not followed."""
        made = super().variants(given)
        return made and replace(made, step=1)

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
    meta["canvas"] = list(placement.canvas)
