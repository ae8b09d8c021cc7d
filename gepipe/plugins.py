"""Finds operators, engines, sources and sinks by name through entry points.

A package registers with, for example, `[project.entry-points."gepipe.ops"] blur = "pkg.mod:Blur"`.
gepipe's own are registered the same way. Only the plugin that is asked for is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from gepipe.errors import PluginError

Kind = Literal["ops", "engines", "acl", "sources", "sinks"]


@cache
def _found(kind: Kind) -> Mapping[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=f"gepipe.{kind}"):
        # The same distribution may be seen twice, as when it lies on the path twice.
        if found.setdefault(point.name, point).value != point.value:
            both = f"{found[point.name].value} and {point.value}"
            raise PluginError(f"{kind}: {point.name!r} is registered twice: {both}")
    return found


def names(kind: Kind) -> list[str]:
    """Return the registered names of one kind, sorted."""
    return sorted(_found(kind))


def did_you_mean(name: str, known: list[str]) -> str:
    """Return a hint that names the nearest of `known`, or lists all of them."""
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known)) or 'none'}"


@cache
def load(kind: Kind, name: str) -> Any:
    """Import and return what is registered as `name`.

    Raises:
        PluginError: Nothing is registered under that name, or its import fails.
    """
    point = _found(kind).get(name)
    if point is None:
        raise PluginError(f"unknown name {name!r} in {kind}; {did_you_mean(name, names(kind))}")
    try:
        return point.load()
    except Exception as error:
        raise PluginError(f"{kind}: {name!r} ({point.value}) does not import: {error}") from error
