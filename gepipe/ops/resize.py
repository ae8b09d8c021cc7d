"""The operator that resizes an image."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from gepipe.errors import ItemError
from gepipe.ops.decode import MAX_PIXELS
from gepipe.ops.geometry import Geometry, pair, positive_size
from gepipe.ops.placement import Interpolation, Placement
from gepipe.tensors import DYNAMIC, TensorSpec, Variants


@dataclass(frozen=True)
class Resize(Geometry):
    """Resize an image to an exact size, or keeping its aspect ratio.

    Give one of `size`, `short_side` and `long_side`, or limits: `min_side`, `max_side` or both.
    Where the ratio is kept, the other side is rounded to the nearest pixel; with `multiple_of`
    both are rounded to its multiples. A model that takes any size needs `max_side` (or `size`, or
    `long_side`), since memory for the largest image is set aside before the first.

    Attributes:
        size: [height, width] of the result; one number for a square. Does not keep the ratio.
        short_side: Length in pixels of the shorter side of the result.
        long_side: Length in pixels of the longer side of the result.
        min_side: Enlarge an image whose shorter side is below this, to just this.
        max_side: Shrink an image whose longer side would be above this; goes before the others.
        multiple_of: Round both sides to the nearest multiple of this, never above max_side.
        interpolation: nearest, linear, cubic or area (averages; best for large reductions).
    """

    shorthand: ClassVar[str | None] = "size"
    size: int | tuple[int, int] | None = None
    short_side: int | None = None
    long_side: int | None = None
    min_side: int | None = None
    max_side: int | None = None
    multiple_of: int | None = None
    interpolation: Interpolation = "linear"

    def __post_init__(self) -> None:
        exact = [name for name in ("size", "short_side", "long_side") if self._has(name)]
        limits = [name for name in ("min_side", "max_side", "multiple_of") if self._has(name)]
        if len(exact) != 1 and (exact or not limits):
            raise ValueError(
                "give exactly one of size, short_side, long_side, or limits: min_side, max_side, "
                "multiple_of"
            )
        for name in (*exact, *limits):
            positive_size(name, getattr(self, name))
        for name in limits:
            if exact == ["size"] or (exact and name == "min_side"):
                raise ValueError(f"{exact[0]} settles what {name} is for; leave one of them out")
        if exact == ["long_side"] and self._has("max_side"):
            raise ValueError("long_side settles what max_side is for; leave one of them out")
        low, high, step = self.min_side, self.max_side, self.multiple_of
        if low and high and low > high:
            raise ValueError(f"min_side is {low}, above max_side, which is {high}")
        if step and high and step > high:
            raise ValueError(f"multiple_of is {step}, above max_side, which is {high}")

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
            ratio = self._ratio(height, width)
            target = self._rounded(height * ratio), self._rounded(width * ratio)
            # Of a strip one pixel high, a file of 300 bytes, this would be gigabytes.
            if target[0] * target[1] > max(MAX_PIXELS, height * width):
                raise ItemError(
                    "too_large",
                    f"resize: the image of {height}x{width} (height x width) would become "
                    f"{target[0]}x{target[1]}, over the limit of {MAX_PIXELS:,} pixels; "
                    "set max_side, or use letterbox for images as narrow as that",
                )
        return Placement(target, (0, 0), target)

    def fixed_size(self) -> tuple[int, int]:
        """Return `size`, if that was given."""
        return (DYNAMIC, DYNAMIC) if self.size is None else pair(self.size)

    def variants(self, given: Variants | None) -> Variants | None:
        """Return the square that holds every result; without a bound where there is none."""
        if self.size is not None or given is None:
            return super().variants(given)
        step = self.multiple_of or 1
        if (most := self.long_side or self.max_side) is not None:
            side = self._rounded(most)
        elif self.short_side is None and self.min_side is None and given.is_bounded:
            made = super().variants(given)  # sides are rounded, no more
            return made and replace(made, step=step)
        else:
            side = DYNAMIC
        kinds = dict.fromkeys((spec.dtype, (*spec.shape, 1)[2]) for spec in given.specs)
        specs = (TensorSpec("", dtype, (side, side, channels)) for dtype, channels in kinds)
        return Variants(tuple(specs), step=step)

    def _has(self, name: str) -> bool:
        return getattr(self, name) is not None

    def _ratio(self, height: int, width: int) -> float:
        short, long = min(height, width), max(height, width)
        if self.short_side is not None:
            ratio = self.short_side / short
        elif self.long_side is not None:
            ratio = self.long_side / long
        else:
            ratio = max(1.0, (self.min_side or 1) / short)
        return ratio if self.max_side is None else min(ratio, self.max_side / long)

    def _rounded(self, side: float) -> int:
        """Return a side as whole pixels, and the multiple that is asked for."""
        step = self.multiple_of or 1
        count = max(1, round(side / step))
        return step * (count if self.max_side is None else min(count, self.max_side // step))
