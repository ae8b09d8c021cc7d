"""The numeric side of the tensor operators. Loaded by workers only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gepipe.errors import ItemError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def normalize(
    value: Any, mean: Sequence[float], std: Sequence[float], factor: float
) -> NDArray[np.float32]:
    """Return `(value * factor - mean) / std`.

    Args:
        value: (…, channels), any real dtype. Not modified.
        mean: One value, or one a channel.
        std: One value, or one a channel.
        factor: Applied before the mean.

    Raises:
        ItemError: The number of channels does not fit.
    """
    array = np.asarray(value)
    channels = array.shape[-1] if array.ndim else 1
    for name, values in (("mean", mean), ("std", std)):
        if len(values) not in (1, channels):
            raise ItemError(
                "shape",
                f"normalize: {name} has {len(values)} values, but the array "
                f"{list(array.shape)} has {channels} channels on its last axis; "
                "give one value a channel, and put normalize before to_tensor",
            )
    result = array.astype(np.float32)
    if factor != 1:
        result *= np.float32(factor)
    result -= np.asarray(mean, np.float32)
    result /= np.asarray(std, np.float32)
    return result


def cast(value: Any, dtype: str) -> NDArray[Any]:
    """Return an array in another dtype; integers saturate instead of wrapping round.

    Args:
        value: Any shape and real dtype. Not modified, returned if it has that dtype.
        dtype: NumPy's name of the wanted dtype.
    """
    array = np.asarray(value)
    wanted = np.dtype(dtype)
    if array.dtype == wanted:
        return array
    if wanted.kind in "iu" and not np.can_cast(array.dtype, wanted):
        limits = np.iinfo(wanted)
        if array.dtype.kind == "f":
            array = np.nan_to_num(np.rint(array), nan=0.0, posinf=np.inf, neginf=-np.inf)
        # In float the upper limit of a 64-bit type rounds up to one too many: compare, then set.
        low, high = array <= limits.min, array >= limits.max
        with np.errstate(invalid="ignore"):
            result = array.astype(wanted)
        result[low], result[high] = limits.min, limits.max
        return result
    with np.errstate(over="ignore"):
        return array.astype(wanted)
