"""Measures how far two runs of one model are apart, item by item, in constant memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gepipe.errors import TensorMismatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass
class OutputDifference:
    """How far one output is apart.

    Attributes:
        name: The output, as the first side calls it.
        items: Items that were compared.
        reach: Largest absolute value of the first side.
        max_abs: Largest absolute difference.
        max_rel: Largest difference, relative to the first side's value there.
        cosine: Smallest cosine of the angle between the values of an item.
        nan_a: NaN values of the first side.
        nan_b: NaN values of the second side.
        torn: Values that are finite on one side only.
        worst: Item with the largest absolute difference.
    """

    name: str
    items: int = 0
    reach: float = 0.0
    max_abs: float = 0.0
    max_rel: float = 0.0
    cosine: float = 1.0
    nan_a: int = 0
    nan_b: int = 0
    torn: int = 0
    worst: int = -1

    @property
    def scaled(self) -> float:
        """Largest difference as a share of the largest value."""
        return self.max_abs / self.reach if self.reach else self.max_abs

    def add(self, index: int, first: NDArray[Any], second: NDArray[Any]) -> None:
        """Take in an item.

        Args:
            index: The item.
            first: One side's values.
            second: The other's, of the same shape.

        Raises:
            TensorMismatchError: The shapes differ.
        """
        if first.shape != second.shape:
            raise TensorMismatchError(
                f"output {self.name!r} has shape {list(first.shape)} on one side and "
                f"{list(second.shape)} on the other"
            )
        a, b = first.astype(np.float64).ravel(), second.astype(np.float64).ravel()
        self.items += 1
        self.nan_a += int(np.isnan(a).sum())
        self.nan_b += int(np.isnan(b).sum())
        finite = np.isfinite(a) & np.isfinite(b)
        same = finite | (np.isnan(a) & np.isnan(b)) | (a == b)
        self.torn += int((~same).sum())
        a, b = a[finite], b[finite]
        if not a.size:
            return
        apart = np.abs(a - b)
        self.reach = max(self.reach, float(np.abs(a).max()))
        largest = float(apart.max())
        if largest > self.max_abs or self.worst < 0:
            self.max_abs, self.worst = max(largest, self.max_abs), index
        nonzero = a != 0
        if nonzero.any():
            relative = apart[nonzero] / np.abs(a[nonzero])
            self.max_rel = max(self.max_rel, float(relative.max()))
        self.cosine = min(self.cosine, _cosine(a, b))


def _cosine(a: NDArray[Any], b: NDArray[Any]) -> float:
    lengths = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    if not lengths:
        return 1.0 if not (a.any() or b.any()) else 0.0
    return min(1.0, float(a @ b) / lengths)


@dataclass
class Differences:
    """How far all outputs are apart.

    Attributes:
        outputs: Of each output, in the order of the first side.
    """

    outputs: dict[str, OutputDifference] = field(default_factory=dict)

    def add(self, index: int, first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
        """Take in an item's outputs. Those of other names are matched by their place.

        Raises:
            TensorMismatchError: The numbers of outputs or their shapes differ.
        """
        if len(first) != len(second):
            raise TensorMismatchError(
                f"one model has the outputs {', '.join(first)}, the other {', '.join(second)}"
            )
        names = list(first) if set(first) == set(second) else list(second)
        for name, other in zip(first, names, strict=True):
            kept = self.outputs.setdefault(name, OutputDifference(name))
            kept.add(index, np.asarray(first[name]), np.asarray(second[other]))


def agrees(first: Any, second: Any, tolerance: float) -> bool:  # noqa: PLR0911 - one a kind of value
    """Whether two results say the same.

    Of a `top_k` list the first class counts. Otherwise names, texts and whole numbers must be
    equal, and fractions within a tolerance of the larger one, or of 1.
    """
    if isinstance(first, dict) and isinstance(second, dict):
        if _has_top(first) and _has_top(second):
            return bool(first["top_k"][0]["class"] == second["top_k"][0]["class"])
        return first.keys() == second.keys() and all(
            agrees(first[key], second[key], tolerance) for key in first
        )
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(
            agrees(a, b, tolerance) for a, b in zip(first, second, strict=True)
        )
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        a, b = np.asarray(first), np.asarray(second)
        if a.shape != b.shape:
            return False
        if a.dtype.kind != "f":
            return bool((a == b).all())
        scale = max(1.0, float(np.abs(a[np.isfinite(a)]).max(initial=0)))
        return bool(np.allclose(a, b, rtol=0, atol=tolerance * scale, equal_nan=True))
    if isinstance(first, float) and isinstance(second, float | int):
        if not (math.isfinite(first) and math.isfinite(second)):
            return first == second or (math.isnan(first) and math.isnan(second))
        return abs(first - second) <= tolerance * max(1.0, abs(first), abs(second))
    return bool(first == second)


def _has_top(result: dict[str, Any]) -> bool:
    listed = result.get("top_k")
    return isinstance(listed, list) and bool(listed) and "class" in listed[0]
