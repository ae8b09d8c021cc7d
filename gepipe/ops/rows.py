"""Writes one item's arrays into its rows of the slot. Loaded by workers only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gepipe.errors import ItemError
from gepipe.plugins import did_you_mean
from gepipe.tensors import DYNAMIC
from gepipe.unshaped import UnshapedBuffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = Mapping[str, NDArray[Any] | UnshapedBuffer]


def write_rows(value: Any, rows: Rows) -> None:
    """Copy an item's result into its rows, whatever its strides.

    Args:
        value: One array for the only input, or dict of name to array.
        rows: Input name to the item's row, written in place.

    Raises:
        ItemError: Names, shapes or dtypes do not fit the model's inputs.
    """
    if not isinstance(value, Mapping):
        if len(rows) != 1:
            raise ItemError(
                "shape",
                f"got one array, but the model has the inputs {', '.join(map(repr, rows))}; "
                "return a dict of name to array",
            )
        value = {next(iter(rows)): value}
    for name in value:
        if name not in rows:
            hint = did_you_mean(str(name), list(rows))
            raise ItemError("shape", f"got {name!r}, but the model has no such input; {hint}")
    for name, row in rows.items():
        if name not in value:
            raise ItemError(
                "shape",
                f"got {', '.join(map(repr, value))}, but not the model's input {name!r}",
            )
        _write_row(name, row, value[name])


def opened(
    name: str, row: NDArray[Any] | UnshapedBuffer, dtype: str, shape: tuple[int, ...]
) -> NDArray[Any]:
    """Return the array to write into: the row itself, or its room at this shape.

    Raises:
        ItemError: Such an array does not fit.
    """
    if isinstance(row, UnshapedBuffer):
        if dtype != row.dtype or not row.takes(shape):
            raise mismatch(name, row, dtype, shape)
        return row.one(shape)
    if shape != row.shape or dtype != row.dtype.name:
        raise mismatch(name, row, dtype, shape)
    return row


def mismatch(
    name: str, row: NDArray[Any] | UnshapedBuffer, dtype: str, shape: tuple[int, ...]
) -> ItemError:
    """Return the error for an array that does not fit its row, with what to do about it."""
    hint, (takes, extents) = "", _described(row)
    if not _fits(shape, row.shape):
        if len(shape) == 3 and _fits((shape[2], shape[0], shape[1]), row.shape):
            hint = "; add to_tensor: {layout: nchw}"
        elif len(shape) == 3 and _fits((shape[1], shape[2], shape[0]), row.shape):
            hint = "; set layout: nhwc in to_tensor"
        elif len(shape) == 3 and len(row.shape) == 3:
            hint = "; add a resize, center_crop or letterbox to that size"
    elif dtype != takes:
        hint = f"; add cast: {takes}"
    return ItemError(
        "shape",
        f"got {dtype} {list(shape)}; the model's input {name!r} takes {takes} {extents}{hint}",
    )


def _described(row: NDArray[Any] | UnshapedBuffer) -> tuple[str, str]:
    dtype = row.dtype if isinstance(row, UnshapedBuffer) else row.dtype.name
    extents = ", ".join("any" if extent == DYNAMIC else str(extent) for extent in row.shape)
    return dtype, f"[{extents}]"


def _fits(shape: Sequence[int], row: Sequence[int]) -> bool:
    return len(shape) == len(row) and all(
        its in (DYNAMIC, mine) for mine, its in zip(shape, row, strict=True)
    )


def _write_row(name: str, row: NDArray[Any] | UnshapedBuffer, value: Any) -> None:
    if isinstance(value, bytes | bytearray | memoryview | str):
        takes, extents = _described(row)
        raise ItemError(
            "shape",
            f"got {type(value).__name__} for the model's input {name!r}, which takes "
            f"{takes} {extents}; add decode_image, or a python operator",
        )
    array = np.asarray(value)
    opened(name, row, array.dtype.newbyteorder("=").name, array.shape)[...] = array
