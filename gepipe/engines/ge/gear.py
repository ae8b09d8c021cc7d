"""One shape of a model's inputs and outputs, and those that differ from it in the batch only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gepipe.engines.ge.interface import Description, Shape, Tensor
from gepipe.tensors import DYNAMIC

Rows = tuple[Shape, ...]


@dataclass(frozen=True)
class Gear:
    """One shape of all inputs.

    Attributes:
        batch: Rows.
        inputs: Shape of each input, batch included.
        setting: What ACL is told; empty for a static model.
        outputs: Shape of each output, batch included.
    """

    batch: int
    inputs: Rows
    setting: Shape
    outputs: Rows

    def input_nbytes(self, tensors: Sequence[Tensor]) -> list[int]:
        """Return the bytes of each input."""
        pairs = zip(tensors, self.inputs, strict=True)
        return [tensor.itemsize * math.prod(shape) for tensor, shape in pairs]


@dataclass(frozen=True)
class Group:
    """Gears that differ in the batch only.

    Attributes:
        sizes: Their batch sizes, ascending; empty means any.
        gears: By batch size; filled as needed for a model that takes ranges of shapes.
    """

    sizes: tuple[int, ...]
    gears: dict[int, Gear]


def input_shapes(description: Description) -> list[tuple[Shape, Rows]]:
    """Return each gear: what ACL is told, and the shape of each input."""
    dims = [tensor.dims for tensor in description.inputs]
    if description.kind == "static":
        return [((), tuple(dims))]
    if description.kind == "dims":
        found = []
        for setting in description.settings:
            rest = list(setting)
            shapes = []
            for shape in dims:
                shapes.append(tuple(rest[: len(shape)]))
                del rest[: len(shape)]
            found.append((setting, tuple(shapes)))
        return found
    return [
        (setting, tuple(_filled(shape, setting, description.kind) for shape in dims))
        for setting in description.settings
    ]


def _filled(shape: Shape, setting: Shape, kind: str) -> Shape:
    values = iter(setting * len(shape) if kind == "batch" else setting)
    return tuple(next(values) if extent == DYNAMIC else extent for extent in shape)
