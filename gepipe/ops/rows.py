"""Writes one item's arrays into its rows of the slot. Loaded by workers only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gepipe.errors import ItemError
from gepipe.plugins import did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = Mapping[str, NDArray[Any]]


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


def mismatch(name: str, row: NDArray[Any], dtype: str, shape: tuple[int, ...]) -> ItemError:
    """Return the error for an array that does not fit its row, with what to do about it."""
    hint = ""
    if tuple(shape) != row.shape:
        if len(shape) == 3 and (shape[2], shape[0], shape[1]) == row.shape:
            hint = "; add to_tensor: {layout: nchw}"
        elif len(shape) == 3 and (shape[1], shape[2], shape[0]) == row.shape:
            hint = "; set layout: nhwc in to_tensor"
        elif len(shape) == 3 and len(row.shape) == 3:
            hint = "; add a resize, center_crop or letterbox to that size"
    elif dtype != row.dtype.name:
        hint = f"; add cast: {row.dtype.name}"
    return ItemError(
        "shape",
        f"got {dtype} {list(shape)}; the model's input {name!r} takes {row.dtype.name} "
        f"{list(row.shape)}{hint}",
    )


def _write_row(name: str, row: NDArray[Any], value: Any) -> None:
    if isinstance(value, bytes | bytearray | memoryview | str):
        raise ItemError(
            "shape",
            f"got {type(value).__name__} for the model's input {name!r}, which takes "
            f"{row.dtype.name} {list(row.shape)}; add decode_image, or a python operator",
        )
    array = np.asarray(value)
    if array.shape != row.shape or array.dtype.newbyteorder("=") != row.dtype:
        raise mismatch(name, row, array.dtype.name, array.shape)
    row[...] = array
