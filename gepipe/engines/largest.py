"""How large a model's outputs become, found out by executing it; where that is dear, on strips.

A convolution over a picture of 16 megapixels takes many seconds and gigabytes, which no run should
begin with. Almost always an extent of an output follows from one extent of the input, or from the
product of both. So strips tell as much: as high as the largest and a few pixels wide, and the other
way round. That this model is one of those is checked on small inputs; otherwise the largest is
executed after all. What is larger than was found out never harms a neighbour: it is set aside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from gepipe.errors import BackendError
from gepipe.tensors import DYNAMIC, TensorSpec, Variants

Shape: TypeAlias = tuple[int, ...]
#: Makes the rows of the outputs, given those of the inputs.
Execute: TypeAlias = Callable[[tuple[Shape, ...]], tuple[Shape, ...]]

#: Bytes of an input that is executed as it is.
_SMALL: Final = 5 << 20
#: Least side of a strip, in pixels: networks tend to fail on smaller ones.
_SIDE: Final = 32


def largest_rows(
    inputs: Sequence[TensorSpec], variants: Variants, execute: Execute
) -> tuple[tuple[Shape, ...], ...]:
    """Return the rows of all outputs for each of the largest inputs; empty if that is not known.

    Args:
        inputs: Rows of the model's inputs.
        variants: How large the items are; each input is given one.
        execute: Executes one row.

    Raises:
        BackendError: The model does not take the largest input.
    """
    found = []
    for made in variants.specs:
        closed = [closed_row(spec, made) for spec in inputs]
        if not all(spec.is_static for spec in closed):
            return ()
        rows = None
        if len(closed) == 1 and closed[0].nbytes > _SMALL and not variants.complete:
            rows = _by_strips(inputs[0], closed[0].shape, variants.step, execute)
        found.append(rows or execute(tuple(spec.shape for spec in closed)))
    return tuple(found)


def closed_row(row: TensorSpec, made: TensorSpec | None) -> TensorSpec:
    """Return a row with its open extents filled in from what the stage before makes."""
    if made is None or not TensorSpec(row.name, made.dtype, row.shape).accepts(made):
        return row
    return row.filled(made)


def _by_strips(
    row: TensorSpec, largest: Shape, step: int, execute: Execute
) -> tuple[Shape, ...] | None:
    """Return the rows of the outputs; None where strips do not tell."""
    axes = [axis for axis, extent in enumerate(row.shape) if extent == DYNAMIC]
    side = step * -(-_SIDE // step)
    if len(axes) != 2 or 3 * side > min(largest[axis] for axis in axes):
        return None

    def made(height: int, width: int) -> tuple[Shape, ...]:
        shape = list(largest)
        shape[axes[0]], shape[axes[1]] = height, width
        return execute((tuple(shape),))

    try:
        small = made(side, side)
        guess = _combined(small, made(2 * side, side), made(side, 3 * side))
        if guess != made(2 * side, 3 * side):
            return None
        high, wide = made(largest[axes[0]], side), made(side, largest[axes[1]])
    except BackendError:  # it takes other sizes than these
        return None
    return _combined(small, high, wide)


def _combined(
    small: tuple[Shape, ...], high: tuple[Shape, ...], wide: tuple[Shape, ...]
) -> tuple[Shape, ...]:
    return tuple(
        tuple(
            b if a == least else a if b == least else -(-a * b // max(least, 1))
            for least, a, b in zip(*rows, strict=True)
        )
        for rows in zip(small, high, wide, strict=True)
    )
