"""Rows that lie in memory of another program already: an infer worker reads them where they are.

    supervisor ── ("lent", nbytes) + its descriptor ──▶ worker
    supervisor ── a ticket with offsets in place of the input slot ──▶ worker

The worker cannot write there: what else lies in that memory is none of its affairs.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.runtime.memory import SharedBuffer, SlotLayout


class LentRows(NamedTuple):
    """Where the rows of a batch lie.

    Attributes:
        memory: The memory.
        offsets: Of each input the first of its rows, in bytes; they are contiguous.
    """

    memory: SharedBuffer
    offsets: tuple[int, ...]


class LentMemory:
    """A worker's view of memory that was lent to it."""

    def __init__(self, layout: SlotLayout) -> None:
        """Begin with none; the inputs are those of `layout`, whose extents are known."""
        self._tensors = layout.tensors
        self._map: mmap.mmap | None = None

    def attach(self, fd: int, nbytes: int) -> None:
        """Take the memory in place of what was lent before."""
        self._map = mmap.mmap(fd, nbytes, prot=mmap.PROT_READ)
        os.close(fd)

    def rows(self, offsets: Sequence[int], count: int) -> Mapping[str, NDArray[Any]]:
        """Return name to (count, …) array; see `LentRows`."""
        import numpy as np

        assert self._map is not None
        views = {}
        for tensor, offset in zip(self._tensors, offsets, strict=True):
            shape = (count, *tensor.shape[1:])
            flat = np.frombuffer(self._map, tensor.dtype, math.prod(shape), offset)
            views[tensor.name] = flat.reshape(shape)
        return views
