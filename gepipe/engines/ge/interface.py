"""What a model takes and gives, in gepipe's terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gepipe.tensors import DTYPES, DYNAMIC

#: Memory of a tensor that has no bound, until its first batch tells how much, or no elements.
_LEAST: Final = 64

Shape = tuple[int, ...]
#: Lowest and highest extent per axis, -1 for no bound.
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output.

    Attributes:
        index: Its place in the dataset.
        name: Its name in the network, without the node that makes it.
        dtype: NumPy's name of its type.
        dims: Extents, -1 where a gear or the request decides.
        nbytes: At its largest; 0 where it has no bound.
        format: ACL's number of its format.
        pixels: Whether static AIPP takes it as uint8 pixels.
    """

    index: int
    name: str
    dtype: str
    dims: Shape
    nbytes: int
    format: int = 2
    pixels: bool = False

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return DTYPES[self.dtype].itemsize

    @property
    def room(self) -> int:
        """Bytes of memory that it takes at first."""
        return self.nbytes or _LEAST

    def __str__(self) -> str:
        extents = ", ".join("?" if extent == DYNAMIC else str(extent) for extent in self.dims)
        return f"{self.name!r}: {self.dtype} [{extents}]"


@dataclass(frozen=True, slots=True)
class Description:
    """A model's interface.

    Attributes:
        inputs: Without the input that holds the gear.
        outputs: In order.
        gear_index: Place of the input that holds the gear; -1 where there is none.
        gear_nbytes: Bytes of it.
        kind: `static`, `batch`, `hw`, `dims` or `range`.
        settings: Each gear: (batch,), (height, width), or the dims of all inputs.
        ranges: Of a model for ranges of shapes: those of each input; empty where this CANN does
            not tell.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    gear_index: int = -1
    gear_nbytes: int = 0
    kind: str = "static"
    settings: tuple[Shape, ...] = ()
    ranges: tuple[Ranges, ...] = ()

    def ranges_of(self, input_at: int) -> Ranges:
        """Return the extents that an input may have."""
        if self.ranges:
            return self.ranges[input_at]
        dims = self.inputs[input_at].dims
        return tuple((n, n) if n != DYNAMIC else (0, DYNAMIC) for n in dims)

    @property
    def dataset_nbytes(self) -> list[int]:
        """Bytes of memory of each tensor, the input that holds the gear included."""
        sizes = [tensor.room for tensor in (*self.inputs, *self.outputs)]
        return [*sizes, self.gear_nbytes] if self.gear_nbytes else sizes


def ranged(pairs: Ranges) -> str:
    """Return the extents that a shape may have, as atc has them written: `[1~4, 3, 64~]`."""
    extents = [
        str(low) if low == high else f"{low}~{high}" if high != DYNAMIC else f"{low}~"
        for low, high in pairs
    ]
    return f"[{', '.join(extents)}]"
