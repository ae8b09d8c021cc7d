"""Shapes of a model's outputs, where they follow from those of its inputs: learned by executing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gepipe.unshaped import UnshapedBuffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays: TypeAlias = Mapping[str, NDArray[Any]]

Rows: TypeAlias = tuple[tuple[int, ...], ...]

#: Shapes that are remembered. Pictures may come in any number of them.
_REMEMBERED: Final = 4096


class OutputShapes:
    """What is known of the outputs' rows by the shapes of the inputs' rows.

    Where a shape is known, results are written straight to where they go; a shape that is new
    costs a copy of its results.
    """

    def __init__(self) -> None:
        self._known: dict[Rows, Rows] = {}
        self._follow = True

    def of(self, inputs: Arrays) -> Rows | None:
        """Return the rows of the outputs for a batch; None if they are not known."""
        return self._known.get(_rows(inputs))

    def learn(self, inputs: Arrays, results: Sequence[NDArray[Any]]) -> Rows:
        """Take in what an execution made, and return the rows of its outputs."""
        rows = tuple(result.shape[1:] for result in results)
        if self._follow:
            if len(self._known) == _REMEMBERED:
                self._known.clear()
            self._known[_rows(inputs)] = rows
        return rows

    def forget(self) -> None:
        """Know nothing any more: the outputs' shapes depend on the values too."""
        self._known.clear()
        self._follow = False


def opened(
    outputs: Mapping[str, NDArray[Any] | UnshapedBuffer], rows: Rows
) -> dict[str, NDArray[Any]]:
    """Return the arrays that results go to, once the shapes of their rows are known.

    Raises:
        ItemError: There is no room for them.
    """
    return {
        name: array.open(row) if isinstance(array, UnshapedBuffer) else array
        for (name, array), row in zip(outputs.items(), rows, strict=True)
    }


def _rows(arrays: Arrays) -> Rows:
    return tuple(array.shape[1:] for array in arrays.values())
