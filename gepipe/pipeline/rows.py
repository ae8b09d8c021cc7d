"""The rows of a model's inputs, as far as the pipeline settles what the model leaves open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gepipe.errors import ConfigError, TensorMismatchError
from gepipe.ops.plan import PreProgram, plan_pre
from gepipe.ops.resize import Resize
from gepipe.tensors import DYNAMIC, TensorSpec, Variants

if TYPE_CHECKING:
    from gepipe.runtime.body import ModelInfo
    from gepipe.spec.model import PipelineSpec


@dataclass(frozen=True, slots=True)
class InputRows:
    """What pre writes for one item.

    Attributes:
        specs: The model's inputs, with the extents that pre settles for all items alike.
        largest: The most bytes of each; empty where all extents are known.
    """

    specs: tuple[TensorSpec, ...]
    largest: tuple[int, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether items may differ in their shapes."""
        return bool(self.largest)


def input_rows(spec: PipelineSpec, info: ModelInfo) -> InputRows:
    """Return the rows of the model's inputs, with open extents filled in from what pre makes.

    Raises:
        ConfigError: The stage before makes items of any size.
        TensorMismatchError: Nothing is known of what it makes.
    """
    program = plan_pre(spec.pre.ops)
    rows = []
    for row in info.inputs:
        made = program.output_for(row)
        rows.append(row.filled(made) if made is not None and row.accepts(made) else row)
    if all(row.is_static for row in rows):
        return InputRows(tuple(rows))
    variants = program.variants()
    largest = tuple(_largest(spec, program, row, variants) for row in rows)
    return InputRows(tuple(rows), largest)


def row_batch(spec: PipelineSpec) -> int:
    """Return the rows of a batch whose items each have a shape of their own: one.

    Raises:
        ConfigError: More are asked for.
    """
    batch = spec.pre.batch_size
    if batch not in ("auto", 1):
        raise ConfigError(
            f"{spec.pre.name}: batch_size is {batch}, but items keep sizes of their own, and one "
            "batch has one size; leave batch_size out, or give all items one size, as with "
            "`resize: {size: [height, width]}`"
        )
    return 1


def _largest(
    spec: PipelineSpec, program: PreProgram, row: TensorSpec, variants: Variants | None
) -> int:
    if row.is_static:
        return row.nbytes
    made = variants.specs if variants is not None else ()
    known = any(extent != DYNAMIC for its in made for extent in its.shape)
    if variants is None or not known or not all(row.accepts(its) for its in made):
        makes = program.output_for(row) if known else "something that is only known when it runs"
        raise TensorMismatchError(
            f"{spec.infer.name}: input {row} has open extents, and stage {spec.pre.name!r} "
            f"makes {makes}; give its operators a fixed size, as with "
            "`resize: {size: [height, width]}`"
        )
    if variants.is_bounded:
        return max(row.filled(its).nbytes for its in made)
    resizes = [op for op in program.ops if isinstance(op, Resize)]
    remedy = (
        f"set max_side in `{resizes[-1].title}`"
        if resizes
        else "add `- resize: {max_side: 2000}`, or a fixed size, as with "
        "`resize: {size: [height, width]}`"
    )
    raise ConfigError(
        f"{spec.infer.name}: input {row} has open extents, and stage {spec.pre.name!r} makes "
        f"items of any size; memory for the largest is set aside before the first: {remedy}"
    )
