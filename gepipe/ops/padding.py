"""The operator that cuts from maps what was put around a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gepipe.errors import ConfigError
from gepipe.ops.op import Meta, Op
from gepipe.plugins import did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Where height and width of a map may stand among its axes.
_PLACES = ((-2, -1), (-3, -2))


@dataclass(frozen=True)
class CutPadding(Op):
    """Cut from a model's maps what letterbox or pad put around the picture.

    A map is an output with two neighbouring axes that are the height and width of what the model
    was given, or both the same whole number of times smaller: a mask, or a probability for each
    pixel. Other outputs stay as they are. `meta["pad"]` is that of the cut map, so that points of
    it map back to the original: `(point - pad) / scale`, with points in pixels of the model's
    input.

    Attributes:
        output: Name of the only output to cut; all maps are, where it is left out.
    """

    stage: ClassVar[Literal["pre", "mid", "post", "both"]] = "post"
    shorthand: ClassVar[str | None] = "output"
    output: str | None = None

    def __call__(self, value: Any, meta: Meta) -> dict[str, NDArray[Any]]:
        """Return the outputs, with views into the maps.

        Raises:
            ConfigError: The output that is named is none, or no map.
        """
        if not isinstance(value, Mapping):
            raise ConfigError("cut_padding: takes the model's outputs; put it first in its stage")
        if self.output is not None and self.output not in value:
            hint = did_you_mean(self.output, list(value))
            raise ConfigError(f"cut_padding: the model has no output {self.output!r}; {hint}")
        canvas = meta.get("canvas")
        if canvas is None:
            return dict(value)
        found = {
            name: _axes(array.shape, canvas)
            for name, array in value.items()
            if self.output in (None, name)
        }
        maps = {name: place for name, place in found.items() if place is not None}
        if self.output is not None and not maps:
            raise ConfigError(
                f"cut_padding: output {self.output!r} has the shape "
                f"{list(value[self.output].shape)}, and the model was given {list(canvas)} "
                "(height, width): it is no map of that"
            )
        if not maps:
            return dict(value)
        # All are cut at one place, whatever their strides are, as there is one meta.
        step = math.lcm(*(step for _, step in maps.values()))
        bounds = [_bounds(meta, axis, step) for axis in (0, 1)]
        meta["pad"] = [pad - first for pad, (first, _) in zip(meta["pad"], bounds, strict=True)]
        meta["canvas"] = [last - first for first, last in bounds]
        return {
            name: _cut(array, *maps[name], bounds) if name in maps else array
            for name, array in value.items()
        }


def _axes(shape: tuple[int, ...], canvas: tuple[int, int]) -> tuple[tuple[int, int], int] | None:
    """Return the axes of height and width, and how many times smaller a map is; or None."""
    for place in _PLACES:
        if len(shape) < -place[0]:
            continue
        height, width = shape[place[0]], shape[place[1]]
        if min(height, width) > 1 and canvas[0] % height == canvas[1] % width == 0:
            step = canvas[0] // height
            if step == canvas[1] // width:
                return place, step
    return None


def _bounds(meta: Meta, axis: int, step: int) -> tuple[int, int]:
    """Return where the picture begins and ends on the canvas, in whole steps outwards."""
    most = meta["canvas"][axis]
    extent = (meta["height"], meta["width"])[axis]
    pad = meta["pad"][axis]
    first = max(0, math.floor(pad / step) * step)
    last = min(most, math.ceil(round(pad + extent * meta["scale"][axis], 6) / step) * step)
    return first, max(last, min(most, first + step))


def _cut(
    array: NDArray[Any], place: tuple[int, int], step: int, bounds: list[tuple[int, int]]
) -> NDArray[Any]:
    index: list[Any] = [slice(None)] * array.ndim
    for axis, (first, last) in zip(place, bounds, strict=True):
        index[axis] = slice(first // step, last // step)
    cut: NDArray[Any] = array[tuple(index)]
    return cut
