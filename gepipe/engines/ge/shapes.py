"""The shapes that a model was compiled for, and which of them fits a batch.

Only the batch axis is padded and split: rows do not change each other's results, while an image or
a sequence with zeros behind it gives other results. So every other extent must be one of a gear's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from gepipe.engines.ge.gear import Gear, Group, Rows
from gepipe.engines.ge.interface import Description, Tensor, ranged
from gepipe.engines.ge.pinned import Pinned, is_within
from gepipe.errors import ConfigError, TensorMismatchError
from gepipe.tensors import DYNAMIC, TensorSpec, Variants

#: Largest range of batch sizes that is listed one by one.
_LISTED: Final = 1024
_SHOWN: Final = 20
#: Requests that are remembered; a model that takes ranges may see any number of shapes.
_REMEMBERED: Final = 256


class Shapes:
    """All gears of a model by the shapes of the inputs' rows.

    Attributes:
        inputs: The model's inputs; -1 where gears differ.
        outputs: The model's outputs; likewise.
        sizes: Batch sizes, ascending; empty means any.
    """

    def __init__(
        self,
        description: Description,
        gears: Sequence[Gear],
        path: Path,
        pinned: Pinned,
    ) -> None:
        self._description = description
        self._path = path
        self._pinned = pinned
        self._groups: dict[Rows, Group] = {}
        self._asked: dict[tuple[Rows, Rows], Group] = {}
        for gear in gears:
            self._check_batch(gear)
            rows = tuple(shape[1:] for shape in gear.inputs)
            if pinned.fits(description, rows):
                group = self._groups.setdefault(rows, Group((), {}))
                group.gears[gear.batch] = gear
        for rows, group in self._groups.items():
            self._groups[rows] = Group(tuple(sorted(group.gears)), group.gears)
        if gears and not self._groups:
            raise pinned.refusal(path, self.listed())
        self.is_range = description.kind == "range"
        if self.is_range:
            pinned.check_ranges(description, path)
        self.sizes = self._range_sizes() if self.is_range else self._gear_sizes()
        self.inputs = tuple(self._specs(description.inputs, [g.inputs for g in self._all()]))
        self.outputs = tuple(self._specs(description.outputs, [g.outputs for g in self._all()]))

    def group(self, rows: Rows, outputs: Rows) -> Group:
        """Return the gears for inputs whose rows have these shapes.

        Args:
            rows: Shape of each input's row.
            outputs: Shape of each output's row, as the caller expects it; empty where the caller
                leaves it to the model.

        Raises:
            TensorMismatchError: There is none; the message lists those that there are.
        """
        known = self._asked.get((rows, outputs))
        if known is None:
            if len(self._asked) == _REMEMBERED:
                self._asked.clear()
            known = self._asked[rows, outputs] = self._find(rows, outputs)
        return known

    def _find(self, rows: Rows, outputs: Rows) -> Group:
        if self.is_range:
            self._check_range(rows)
            return Group(self.sizes, {})
        group = self._groups.get(rows)
        if group is None:
            raise TensorMismatchError(
                f"{self._path}: rows of shape {_text(rows)} are not among the model's gears; "
                f"{self.listed()}"
            )
        for gear in group.gears.values():
            theirs = tuple(shape[1:] for shape in gear.outputs)
            if outputs and theirs != outputs:
                raise TensorMismatchError(
                    f"{self._path}: for rows of shape {_text(rows)} the outputs' rows are "
                    f"{_text(theirs)}; the caller expects {_text(outputs)}"
                )
            break
        return group

    @property
    def largest(self) -> Rows:
        """The largest row of each output over all gears; empty where all have the same."""
        if self.is_range or all(spec.row.is_static for spec in self.outputs):
            return ()
        rows = zip(*(gear.outputs for gear in self._all()), strict=True)
        return tuple(max((shape[1:] for shape in each), key=math.prod) for each in rows)

    def check_made(self, made: TensorSpec | None, variants: Variants | None) -> None:
        """Compare what the stage before makes, where items differ in size, with the gears.

        Raises:
            ConfigError: It makes a size that is none of a gear's, or any size.
        """
        if self.is_range or made is None or made.is_static:
            return
        if not all(spec.row.accepts(replace(made, dtype=spec.dtype)) for spec in self.inputs):
            return  # told by whoever compares the stage with the model
        if all(spec.row.is_static for spec in self.inputs):
            return
        if variants is None or not variants.complete:
            raise ConfigError(
                f"{self._path}: the stage before makes items of sizes of their own; "
                f"{self.listed()}; put `- letterbox: {{sizes: [[height, width], …]}}` or the like "
                "of pad at its end, with sizes of these"
            )
        for spec in variants.specs:
            rows = tuple(spec.shape for _ in self.inputs)
            if rows not in self._groups:
                raise Pinned(
                    {tensor.name: spec.shape for tensor in self.inputs}, made=True
                ).refusal(self._path, self.listed())

    def of_range(self, group: Group, batch: int, rows: Rows, outputs: Rows) -> Gear:
        """Return the gear of a model that takes ranges of shapes."""
        gear = group.gears.get(batch)
        if gear is None:
            gear = group.gears[batch] = Gear(
                batch,
                tuple((batch, *row) for row in rows),
                (),
                tuple((batch, *row) for row in outputs),
            )
        return gear

    def first(self) -> Gear | None:
        """Return a gear of the smallest batch; None where a row's shape is not known."""
        if not self.is_range:
            return min(self._all(), key=lambda gear: gear.batch)
        if not all(spec.row.is_static for spec in self.inputs):
            return None
        batch = self.sizes[0] if self.sizes else 1
        inputs = tuple((batch, *spec.shape[1:]) for spec in self.inputs)
        return Gear(batch, inputs, (), ())  # what its outputs are, its execution tells

    def listed(self) -> str:
        """Return the gears as text."""
        description = self._description
        if description.kind in ("static", "range"):
            shapes = [
                f"{tensor.name!r}: {tensor.dtype} {ranged(description.ranges_of(at))}"
                for at, tensor in enumerate(description.inputs)
            ]
            return f"the model takes {', '.join(shapes)}"
        what = {"batch": "batch sizes", "hw": "[height, width]", "dims": "dims of all inputs"}
        values = [
            str(value[0]) if len(value) == 1 else str(list(value)) for value in description.settings
        ]
        more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
        return f"the model's {what[description.kind]}: {', '.join(values[:_SHOWN])}{more}"

    def set_outputs(self, outputs: Rows) -> None:
        """Settle the outputs' rows of a model that takes ranges of shapes."""
        self.outputs = tuple(
            TensorSpec(spec.name, spec.dtype, (spec.shape[0], *row))
            for spec, row in zip(self.outputs, outputs, strict=True)
        )

    def _all(self) -> list[Gear]:
        return [gear for group in self._groups.values() for gear in group.gears.values()]

    def _gear_sizes(self) -> tuple[int, ...]:
        return tuple(sorted({size for group in self._groups.values() for size in group.sizes}))

    def _range_sizes(self) -> tuple[int, ...]:
        description = self._description
        if not description.ranges:
            fixed = {tensor.dims[0] for tensor in description.inputs if tensor.dims}
            return tuple(sorted(fixed)) if DYNAMIC not in fixed else ()
        low = max(pairs[0][0] for pairs in description.ranges if pairs)
        bounds = [pairs[0][1] for pairs in description.ranges if pairs and pairs[0][1] != DYNAMIC]
        if not bounds:
            return ()
        high = min(bounds)
        low = max(1, low)
        if high < low:
            raise TensorMismatchError(
                f"{self._path}: the inputs share no batch size: {self.listed()}"
            )
        return tuple(range(max(low, high - _LISTED + 1), high + 1))

    def _specs(self, tensors: Sequence[Tensor], shapes: Sequence[Rows]) -> list[TensorSpec]:
        batch = self.sizes[0] if len(self.sizes) == 1 else DYNAMIC
        specs = []
        for at, tensor in enumerate(tensors):
            if shapes:
                rows = {gear[at][1:] for gear in shapes}
                row = tuple(
                    extents.pop() if len(extents := set(column)) == 1 else DYNAMIC
                    for column in zip(*rows, strict=True)
                )
            else:
                row = self._pinned.rows.get(tensor.name, tensor.dims[1:])
            specs.append(TensorSpec(tensor.name, tensor.dtype, (batch, *row)))
        return specs

    def _check_batch(self, gear: Gear) -> None:
        description = self._description
        pairs = [
            *zip(description.inputs, gear.inputs, strict=True),
            *zip(description.outputs, gear.outputs, strict=True),
        ]
        for tensor, shape in pairs:
            if not shape or shape[0] != gear.batch:
                raise TensorMismatchError(
                    f"{self._path}: {tensor.name!r} has shape {list(shape)} for a batch of "
                    f"{gear.batch}; expected the batch as the first axis of each input and output"
                )

    def _check_range(self, rows: Rows) -> None:
        description = self._description
        for at, (tensor, row) in enumerate(zip(description.inputs, rows, strict=True)):
            pairs = description.ranges_of(at)[1:]
            if not is_within(row, pairs):
                raise TensorMismatchError(
                    f"{self._path}: input {tensor.name!r} takes rows within {ranged(pairs)}, "
                    f"got {list(row)}"
                )


def _text(shapes: Rows) -> str:
    return ", ".join(str(list(shape)) for shape in shapes)
