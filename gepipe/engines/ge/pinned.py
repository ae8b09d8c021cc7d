"""Extents of rows that are settled before the model is open, where the model leaves a choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gepipe.engines.ge.gear import Rows
from gepipe.engines.ge.interface import Description, Shape, ranged
from gepipe.errors import ConfigError
from gepipe.tensors import DYNAMIC, TensorSpec

_REMEDY: Final = (
    "make one that it has, as with resize, center_crop or letterbox, or convert the model for "
    "this one"
)


@dataclass(frozen=True)
class Pinned:
    """Shapes of rows that the model must take.

    Attributes:
        rows: Input name to the shape of a row.
        made: Whether this is what the stage before makes; else the engine's option `shapes`.
    """

    rows: Mapping[str, Shape] = field(default_factory=dict)
    made: bool = False

    def for_model(self, description: Description, made: TensorSpec | None) -> Pinned:
        """Take in what the stage before makes of an item, where the model could be given it.

        What it cannot be given at all, another type or another number of axes, is told by whoever
        compares the stage with the model.

        Args:
            description: The model.
            made: What the stage makes; None where that is not known.

        Raises:
            ConfigError: The option names an input that there is not, or does not fit it.
        """
        self._check(description)
        if self.rows or made is None or not made.is_static:
            return self
        for tensor in description.inputs:
            if not TensorSpec(tensor.name, tensor.dtype, tensor.dims[1:]).accepts(made):
                return self
        return Pinned({tensor.name: made.shape for tensor in description.inputs}, made=True)

    def fits(self, description: Description, rows: Rows) -> bool:
        """Whether a gear has rows of these shapes."""
        return all(
            self.rows.get(tensor.name, row) == row
            for tensor, row in zip(description.inputs, rows, strict=True)
        )

    def check_ranges(self, description: Description, path: Path) -> None:
        """Compare with the extents that a model for ranges of shapes takes.

        Raises:
            ConfigError: They are outside.
        """
        for at, tensor in enumerate(description.inputs):
            pairs = description.ranges_of(at)[1:]
            row = self.rows.get(tensor.name)
            if row is not None and not is_within(row, pairs):
                raise self.refusal(path, f"input {tensor.name!r} takes rows within {ranged(pairs)}")

    def refusal(self, path: Path, takes: str) -> ConfigError:
        """Return the error for shapes that the model does not take."""
        if self.made:
            row = next(iter(self.rows.values()))  # the same for each
            names = ", ".join(map(repr, self.rows))
            return ConfigError(
                f"{path}: the stage before makes {list(row)} for the input {names}, a shape that "
                f"the model does not have; {takes}; {_REMEDY}"
            )
        wanted = ", ".join(f"{name!r}: {list(row)}" for name, row in self.rows.items())
        return ConfigError(f"{path}: no gear has rows of the shapes {wanted}; {takes}")

    def _check(self, description: Description) -> None:
        known = {tensor.name: tensor for tensor in description.inputs}
        for name, row in self.rows.items():
            if name not in known:
                raise ConfigError(
                    f"ge: shapes: the model has no input {name!r}; it has {', '.join(known)}"
                )
            dims = known[name].dims[1:]
            if len(row) != len(dims) or any(
                theirs not in (DYNAMIC, ours) for ours, theirs in zip(row, dims, strict=True)
            ):
                raise ConfigError(
                    f"ge: shapes: {name!r} is {list(row)}; the model takes rows of {list(dims)}"
                )


def is_within(row: Shape, pairs: Sequence[tuple[int, int]]) -> bool:
    """Whether each extent lies within its bounds."""
    return len(row) == len(pairs) and all(
        low <= extent and (high == DYNAMIC or extent <= high)
        for extent, (low, high) in zip(row, pairs, strict=True)
    )


def parse_pinned(option: Any) -> Pinned:
    """Read the engine's option `shapes`: input name to the shape of a row.

    Raises:
        ConfigError: It is something else.
    """
    if option is None:
        return Pinned()
    if not isinstance(option, Mapping) or not all(
        isinstance(row, Sequence) and all(type(n) is int and n > 0 for n in row)
        for row in option.values()
    ):
        raise ConfigError(f"ge: shapes: expected {{input: [extents of a row]}}, got {option!r}")
    return Pinned({str(name): tuple(row) for name, row in option.items()})
