"""Tensors of strings, as requests carry them and as the process of the model is given them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from gepipe.engines import texts
from gepipe.errors import ItemError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from gepipe.tensors import TensorSpec


class TextRows:
    """The tensors of a model that are of strings."""

    def __init__(self, specs: Sequence[TensorSpec], text_bytes: int) -> None:
        """Find them.

        Args:
            specs: Rows of all of its inputs and outputs.
            text_bytes: The most bytes of a row; see `texts.packed`.
        """
        self._text_bytes = text_bytes
        self._specs = {spec.name: spec for spec in specs if spec.dtype == texts.STRING}

    def __contains__(self, name: str) -> bool:
        return name in self._specs

    def packed(self, specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """Return what lies in the slots for some of the model's inputs or outputs."""
        return tuple(texts.packed(spec, self._text_bytes) for spec in specs)

    def rows_from(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Return the rows of an input that a request carries.

        Args:
            name: The input.
            values: (rows, …) of `bytes`.

        Raises:
            ItemError: It has another type or shape, is not UTF-8, or is too long.
        """
        import numpy as np

        spec = self._specs[name]
        if values.dtype.name != "object" or values.shape[1:] != spec.shape:
            extents = ", ".join(map(str, ("rows", *spec.shape)))
            raise ItemError(
                "shape",
                f"input {name!r} is {values.dtype.name} {list(values.shape)}; expected BYTES "
                f"[{extents}]",
            )
        for number, value in enumerate(values.flat):
            try:
                value.decode()
            except UnicodeDecodeError as error:
                row = number * len(values) // values.size
                raise ItemError(
                    "not_text",
                    f"input {name!r}: row {row} is not UTF-8: {error.reason} at byte {error.start}",
                ) from None
        (spec,) = self.packed([spec])
        rows = np.empty((len(values), *spec.shape), spec.dtype)
        texts.pack(f"input {name!r}", values, rows)
        return rows

    def elements_of(self, name: str, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the strings of an output as (rows, …) of `bytes`."""
        import numpy as np

        shape = self._specs[name].shape
        if not len(rows):
            return np.empty((0, *shape), object)
        return texts.unpack(rows, len(shape))

    def misfit(self, pieces: Mapping[str, Sequence[NDArray[Any]]]) -> ItemError | None:
        """Return why outputs cannot be answered with, if they are not as they are declared.

        Args:
            pieces: Name to the rows that were made.
        """
        for name, spec in self._specs.items():
            for row in itertools.chain(*pieces.get(name, ())):  # each may be of an execution
                made = texts.shape_of(row, len(spec.shape))
                if made != spec.shape:
                    return ItemError(
                        "shape",
                        f"output {name!r} has rows of shape {list(made)}; the configuration has "
                        f"{list(spec.shape)}",
                    )
        return None
