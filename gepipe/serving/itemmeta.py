"""An item's meta on its way around the model: JSON in a tensor of text.

Any client may send such a tensor to the step behind, so it is read by JSON, which runs no code.
What JSON has no form for is tagged: `{"$tuple": […]}`, `{"$bytes": "<base64>"}`, and so on.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final

from gepipe.errors import ItemError

#: The tensor that carries what pre notes about an item around the model.
META: Final = "ITEM_META"

#: How values that JSON has no form for are written, by their type; `_READERS` reads them.
_WRITERS: Final[dict[type, Callable[[Any], Any]]] = {
    bytes: lambda value: base64.b64encode(value).decode(),
    complex: lambda value: [value.real, value.imag],
    frozenset: lambda value: [_tagged(each) for each in value],
    set: lambda value: [_tagged(each) for each in value],
    tuple: lambda value: [_tagged(each) for each in value],
}
_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "$bytes": base64.b64decode,
    "$complex": lambda parts: complex(*parts),
    "$dict": dict,
    "$frozenset": frozenset,
    "$set": set,
    "$tuple": tuple,
}


def to_json(meta: dict[str, Any]) -> bytes:
    """Return meta as JSON.

    Args:
        meta: Plain values, as `gepipe.pipeline.meta` lets them pass.
    """
    return json.dumps(_tagged(meta), separators=(",", ":")).encode()


def from_json(text: bytes) -> dict[str, Any]:
    """Return what `to_json` was given.

    Raises:
        ItemError: `meta`: it is something else.
    """
    try:
        meta = _untagged(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise ItemError("meta", f"ITEM_META is not what a step before has made: {error}") from None
    if not isinstance(meta, dict):
        raise ItemError("meta", "ITEM_META is not what a step before has made: it is no object")
    return meta


def _tagged(value: Any) -> Any:
    kind = type(value)
    if kind in _WRITERS:
        return {f"${kind.__name__}": _WRITERS[kind](value)}
    if kind is list:
        return [_tagged(each) for each in value]
    if kind is not dict:
        return value
    if all(type(key) is str for key in value) and not value.keys() & _READERS.keys():
        return {key: _tagged(each) for key, each in value.items()}
    return {"$dict": [[_tagged(key), _tagged(each)] for key, each in value.items()]}


def _untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_untagged(each) for each in value]
    if not isinstance(value, dict):
        return value
    plain = {key: _untagged(each) for key, each in value.items()}
    tag = next(iter(plain), "")
    return _READERS[tag](plain[tag]) if len(plain) == 1 and tag in _READERS else plain
