"""Batches of texts, executed without the padding that all of their rows share."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gepipe.tensors import DYNAMIC, TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths that a model is executed at: few, as engines keep memory for each.

    Attributes:
        mask: Name of the input that is 1 for each token and 0 for padding.
        steps: The lengths, ascending; the last is that of a slot's rows.
    """

    mask: str
    steps: tuple[int, ...]

    def of(self, mask: NDArray[Any]) -> int:
        """Return the smallest of the lengths that holds every token.

        Args:
            mask: (rows, length); tokens stand in front of the padding.
        """
        import numpy as np

        columns = np.flatnonzero(mask.any(axis=0))
        longest = int(columns[-1]) + 1 if columns.size else 1
        return self.steps[min(bisect_left(self.steps, longest), len(self.steps) - 1)]


class Cut:
    """Cuts the inputs of a batch to a length, and puts back what its outputs then lack.

    Args:
        lengths: The lengths.
        inputs: The model's inputs as its file declares them.
        outputs: Its outputs, likewise.
    """

    def __init__(
        self, lengths: Lengths, inputs: Iterable[TensorSpec], outputs: Iterable[TensorSpec]
    ) -> None:
        self._lengths = lengths
        self._inputs = {spec.name for spec in inputs if _is_open(spec)}
        self._outputs = {spec.name for spec in outputs if _is_open(spec)}

    @classmethod
    def for_model(
        cls,
        lengths: Lengths | None,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
    ) -> Cut | None:
        """Return the cut for a model; None if it takes one length only, or has no mask."""
        opened = {spec.name for spec in inputs if _is_open(spec)}
        if lengths is None or lengths.mask not in opened:
            return None
        return cls(lengths, inputs, outputs)

    def apply(self, inputs: Arrays, outputs: Arrays, count: int) -> tuple[Arrays, Arrays]:
        """Return what to execute, as arrays of their own where they are cut."""
        import numpy as np

        mask = inputs[self._lengths.mask]
        length = self._lengths.of(mask[:count])
        if length >= mask.shape[1]:
            return inputs, outputs
        ins = {
            name: np.ascontiguousarray(array[:count, :length]) if name in self._inputs else array
            for name, array in inputs.items()
        }
        outs = {
            name: np.empty((count, length, *array.shape[2:]), array.dtype)
            if name in self._outputs
            else array
            for name, array in outputs.items()
        }
        return ins, outs

    def restore(self, made: Arrays, outputs: Arrays, count: int) -> None:
        """Copy outputs that are shorter into the batch's own, with zeros behind."""
        for name, array in outputs.items():
            if made[name] is not array:
                length = made[name].shape[1]
                array[:count, :length] = made[name]
                array[:count, length:] = 0


def _is_open(spec: TensorSpec) -> bool:
    return len(spec.shape) > 1 and spec.shape[1] == DYNAMIC
