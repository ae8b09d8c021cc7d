"""What of a pipeline determines its results, for `--resume` to tell whether it is the same job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gepipe.spec.model import PipelineSpec
from gepipe.spec.settled import settle, wished_batch

#: The keys of each role that change what comes out, and not only how fast.
_DECISIVE: Final[dict[str, set[str]]] = {
    "pre": {"name", "role", "batch_size", "ops"},
    "infer": {"name", "role", "model", "backend", "gears", "precision", "nan"},
    "mid": {"name", "role", "batch_size", "ops"},
    "post": {"name", "role", "ops"},
}

#: Longest value that a message quotes whole.
_SHORT_LENGTH: Final = 80


def normal_form(spec: PipelineSpec) -> dict[str, Any]:
    """Return what determines the results, as JSON values with every default filled in.

    Threads, devices, depth, time limits, source and sink are left out: they may differ between a
    run and its continuation. The inputs are the manifest's to compare. What a profile says counts
    as if the stages said it.
    """
    batches = {leg.pre.name: wished_batch(leg) for leg in spec.legs}
    spec = settle(spec)
    stages = [stage.model_dump(mode="json", include=_DECISIVE[stage.role]) for stage in spec.stages]
    for stage in stages:
        if (batch := batches.get(stage["name"])) is not None:
            stage["batch_size"] = batch
    return {"version": 1, "stages": stages}


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return a line `key: old → new` for everything in which two normal forms differ.

    Args:
        old: A normal form, as read back from JSON.
        new: Another one.
    """
    return list(_differences("", old, new))


def _differences(key: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in [*old, *(name for name in new if name not in old)]:
            below = f"{key}.{name}" if key else str(name)
            yield from _differences(below, old.get(name, _Absent), new.get(name, _Absent))
    elif isinstance(old, list) and isinstance(new, list) and _names(old) == _names(new):
        for index, (left, right) in enumerate(zip(old, new, strict=True)):
            name = left.get("name") if isinstance(left, Mapping) else None
            yield from _differences(f"{key}.{name}" if name else f"{key}[{index}]", left, right)
    elif _text(old) != _text(new):
        yield f"{key}: {_short(old)} → {_short(new)}"


class _Absent:
    """Stands for a key that one side does not have."""


def _names(items: list[Any]) -> list[Any]:
    """Return what makes two lists comparable item by item: the names of stages or operators."""
    return [
        item.get("name", next(iter(item), None)) if isinstance(item, Mapping) else type(item)
        for item in items
    ]


def _text(value: Any) -> str:
    """Return JSON: unlike Python's own values, there 1 and true differ, and NaN equals itself."""
    return "" if value is _Absent else json.dumps(value, sort_keys=True)


def _short(value: Any) -> str:
    if value is _Absent:
        return "(not set)"
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        return f"[{', '.join(map(str, _names(value)))}]"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHORT_LENGTH else text[: _SHORT_LENGTH - 1] + "…"
