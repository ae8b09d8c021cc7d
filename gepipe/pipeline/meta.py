"""What operators of pre leave for those of post, as bytes.

`marshal` takes whatever has a buffer, such as a NumPy scalar, and gives back its raw bytes: only
what it gives back as it was may reach it.
"""

from __future__ import annotations

import marshal
from typing import Any, Final

from gepipe.errors import ItemError

_PLAIN: Final = frozenset({str, int, float, bool, bytes, complex, type(None)})
#: Values of an array that may travel; more of them belong into a tensor.
_ARRAY_MAX: Final = 4096


def encode(meta: dict[str, Any]) -> bytes:
    """Return `meta` as bytes; NumPy scalars and small arrays become numbers and lists.

    Raises:
        ItemError: Something in it is no plain value.
    """
    try:
        if not _is_plain(meta):
            meta = {key: _plain(value, repr(key)) for key, value in meta.items()}
        return marshal.dumps(meta)
    except (ValueError, RecursionError):  # in a circle, or a thousand levels deep
        raise ItemError("meta", "an operator left something in meta that nests too deep") from None


def decode(data: bytes) -> dict[str, Any]:
    """Return what `encode` was given."""
    meta: dict[str, Any] = marshal.loads(data)
    return meta


def _is_plain(meta: dict[str, Any]) -> bool:
    """Whether a dict, as most are, holds plain values and flat lists of them only."""
    if not _PLAIN.issuperset(map(type, meta)):
        return False
    for value in meta.values():
        kind = type(value)
        if kind not in _PLAIN and not (
            (kind is list or kind is tuple) and _PLAIN.issuperset(map(type, value))
        ):
            return False
    return True


def _plain(value: Any, where: str) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind in (list, tuple, set, frozenset):
        return kind(_plain(each, where) for each in value)
    if kind is dict:
        return {
            _plain(key, where): _plain(each, f"{where}[{key!r}]") for key, each in value.items()
        }
    import numpy as np

    if isinstance(value, np.ndarray):
        if value.size > _ARRAY_MAX:
            raise ItemError(
                "meta",
                f"an operator left an array of {value.size:,} values in meta ({where}); "
                f"expected at most {_ARRAY_MAX:,}",
            )
        return _plain(value.tolist(), where)
    if isinstance(value, np.generic):
        item = value.item()
        if not isinstance(item, np.generic):  # a longdouble has no number of Python
            return _plain(item, where)
    raise ItemError(
        "meta",
        f"an operator left something in meta that is no plain value ({where}: {kind.__name__}); "
        "expected text, bytes, numbers, or lists, tuples, sets and dicts of them",
    )
