"""The numeric side of the operator vector. Loaded by workers only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gepipe.errors import ConfigError, ItemError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def pooled(
    array: NDArray[Any], pooling: str, meta: Mapping[str, Any], name: str
) -> NDArray[np.float32]:
    """Return one vector for the vectors of an item's tokens.

    Args:
        array: (length, values), padding behind the tokens.
        pooling: mean, max, first or last.
        meta: Facts about the item, with the number of its tokens.
        name: The output's name, for messages.

    Raises:
        ItemError: `shape`: the output is something else than one vector a token.
        ConfigError: Nothing has counted the tokens.
    """
    if array.ndim != 2:
        raise ItemError(
            "shape",
            f"vector: the output {name!r} is {list(array.shape)} for one item; pooling takes one "
            "vector a token; leave pooling out where the model has done it",
        )
    if pooling == "first":
        return np.asarray(array[0], np.float32)
    if "tokens" not in meta:
        raise ConfigError(
            f"vector: pooling {pooling!r} needs the number of tokens, which tokenize notes in "
            'meta["tokens"]'
        )
    tokens: NDArray[Any] = array[: max(int(meta["tokens"]), 1)].astype(np.float32)
    if pooling == "last":
        return np.asarray(tokens[-1])
    return np.asarray(tokens.max(axis=0) if pooling == "max" else tokens.mean(axis=0))


def finished(array: NDArray[Any], name: str, *, normalize: bool, dtype: str) -> NDArray[Any]:
    """Return a copy of a vector in its data type, scaled to length 1 if asked for.

    Raises:
        ItemError: `shape`: the output is no vector.
    """
    if array.ndim == 0 or max(array.shape) != array.size:
        raise ItemError(
            "shape",
            f"vector: the output {name!r} is {list(array.shape)} for one item; expected one "
            "vector; where that is one a token, set pooling: mean, as the model's card says",
        )
    vector = array.reshape(-1).astype(np.float32)
    if normalize:
        length = float(np.linalg.norm(vector))
        vector /= length or 1.0
    return vector.astype(dtype, copy=False)
