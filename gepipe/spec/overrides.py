"""`--set stage.key=value`: changes to the tree of a pipeline file before it is validated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise

from gepipe import plugins
from gepipe.errors import ConfigError, PluginError
from gepipe.spec.parts import shorthand_of
from gepipe.spec.place import Node, Place, Problem
from gepipe.spec.stages import RESERVED
from gepipe.spec.tree import parse

_STEP = re.compile(r"(?P<name>[^\[\].]+)(?P<indexes>(\[[0-9]+\])*)", re.ASCII)
Step = str | int
_KINDS: dict[Step, plugins.Kind] = {"source": "sources", "sink": "sinks"}


class _Refused(Exception):  # noqa: N818 - becomes a Problem within this module
    pass


def apply(root: Node, overrides: Sequence[str], problems: list[Problem]) -> None:
    """Change the tree as the overrides say, the later ones on top of the earlier.

    Args:
        root: The mapping that holds `stages`; changed in place.
        overrides: Texts such as `preprocess.batch_size=16`, `depth=3`,
            `preprocess.ops.resize.short_side=320` or `preprocess.ops[1].resize.short_side=320`.
        problems: Gets what is wrong with an override.
    """
    for number, text in enumerate(overrides, start=1):
        place = Place(override=text, line=number)
        try:
            _apply(root, text, place)
        except _Refused as error:
            problems.append(Problem(place, "", str(error)))


def _apply(root: Node, text: str, place: Place) -> None:
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise _Refused("expected key=value, such as preprocess.batch_size=16")
    if not _is_unicode(text):
        raise _Refused("holds bytes that are not UTF-8; give such a path with --input or --output")
    _set(root, _steps(path.strip()), _value(value, place), place)


def _is_unicode(text: str) -> bool:
    """Whether an argument was UTF-8; what is not arrives as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _value(text: str, place: Place) -> Node:
    found: list[Problem] = []
    if not text.strip():
        return Node(None, place)
    try:
        node = parse(text, "--set", found, place)
    except ConfigError as error:
        raise _Refused(str(error).removeprefix(f"--set {place.override}: ")) from None
    if found:
        raise _Refused(found[0].text)
    return node


def _steps(path: str) -> list[Step]:
    steps: list[Step] = []
    for part in path.split("."):
        found = _STEP.fullmatch(part)
        if found is None:
            raise _Refused(
                f"{part!r} is not a key; expected keys with dots between, and [1] for an index"
            )
        steps.append(found["name"])
        steps += [int(index) for index in re.findall(r"[0-9]+", found["indexes"])]
    return steps


def _set(root: Node, steps: list[Step], value: Node, place: Place) -> None:
    if steps[0] == "pipeline" and len(steps) > 1:
        steps = steps[1:]
    node = _start(root, steps)
    if node is not root:
        steps = steps[1:]
        if not steps:
            raise _Refused("names a stage; expected one of its keys after it")
    kind: plugins.Kind = "ops"
    for step, after in pairwise(steps):
        node = _child(node, step, after, kind, place)
        kind = _KINDS.get(step, "ops")
    last = steps[-1]
    if isinstance(node.value, list):
        if isinstance(last, int):
            node.value[_index(node, last)] = value
        else:
            _operator(node, last).put(last, value)
    elif isinstance(last, int):
        raise _Refused(f"[{last}] follows something that is not a list")
    else:
        _mapping(node, str(last), place).put(last, value)


def _start(root: Node, steps: list[Step]) -> Node:
    """Return the stage that the first step names, or the root for a key of the pipeline."""
    assert isinstance(root.value, dict)
    first = steps[0]
    stages = _stages(root)
    if first in stages:
        return stages[str(first)]
    if first == "stages" and len(steps) > 1 and isinstance(steps[1], str):
        steps.pop(0)
        return _start(root, steps)
    keys = RESERVED - {"pipeline"}
    if first not in keys:
        known = sorted({*stages, *keys})
        near = get_close_matches(str(first), known, n=1)
        hint = (
            f"did you mean {near[0]!r}?"
            if near
            else f"stages: {', '.join(stages) or 'none'}; keys: {', '.join(sorted(keys))}"
        )
        raise _Refused(f"unknown stage or key {str(first)!r}; {hint}")
    return root


def _stages(root: Node) -> dict[str, Node]:
    assert isinstance(root.value, dict)
    stages = root.value.get("stages")
    found: dict[str, Node] = {}
    for stage in stages.value if stages and isinstance(stages.value, list) else []:
        if isinstance(stage.value, dict) and (name := stage.value.get("name")):
            found.setdefault(str(name.value), stage)
    return found


def _child(node: Node, step: Step, after: Step, kind: plugins.Kind, place: Place) -> Node:
    """Go one step down; where nothing is there yet, put an empty mapping."""
    if isinstance(node.value, list):
        if isinstance(step, int):
            at = _index(node, step)
            entry = node.value[at]
            if isinstance(entry.value, str):  # an operator without parameters
                node.value[at] = entry = Node({entry.value: Node(None, entry.place)}, entry.place)
            return entry
        owner = _operator(node, step)
        assert isinstance(owner.value, dict)
        return _open(owner, step, kind, place)
    if isinstance(step, int):
        raise _Refused(f"[{step}] follows something that is not a list")
    mapping = _mapping(node, step, place)
    assert isinstance(mapping.value, dict)
    child = mapping.value.get(step)
    if child is not None and isinstance(child.value, dict | list):
        return child
    if isinstance(after, int):
        raise _Refused(f"{step!r} is not a list here")
    if step == "source" and child is not None and isinstance(child.value, str):
        mapping.put(step, Node({"images": child}, child.place))  # a bare path
        return mapping.value[step]
    return _open(mapping, step, kind, place)


def _open(owner: Node, name: str, kind: plugins.Kind, place: Place) -> Node:
    """Return the mapping under a key; a bare value there moves to the shorthand's field."""
    assert isinstance(owner.value, dict)
    old = owner.value.get(name)
    if old is not None and isinstance(old.value, dict):
        return old
    fresh = Node({}, place)
    if old is not None and old.value is not None:
        field = _shorthand(kind, name)
        if field is None:
            raise _Refused(f"{name!r} holds a value here, not a mapping")
        fresh.put(field, old)
    owner.put(name, fresh)
    return fresh


def _shorthand(kind: plugins.Kind, name: str) -> str | None:
    try:
        return shorthand_of(plugins.load(kind, name))
    except PluginError:
        return None


def _mapping(node: Node, key: str, place: Place) -> Node:
    if node.value is None:
        node.value, node.place = {}, place
    if not isinstance(node.value, dict):
        raise _Refused(f"{key!r} follows something that is not a mapping")
    return node


def _index(node: Node, index: int) -> int:
    assert isinstance(node.value, list)
    if index >= len(node.value):
        raise _Refused(
            f"[{index}] is beyond the end: the list holds {len(node.value)}, counted from 0"
        )
    return index


def _operator(node: Node, name: str) -> Node:
    """Return the entry of the list that is the operator of that name, as a mapping."""
    assert isinstance(node.value, list)
    names: list[str] = []
    for entry in node.value:
        if isinstance(entry.value, dict) and len(entry.value) == 1:
            names.append(next(iter(entry.value)))
        else:
            names.append(entry.value if isinstance(entry.value, str) else "")
    if names.count(name) > 1:
        at = ", ".join(f"[{i}]" for i, other in enumerate(names) if other == name)
        raise _Refused(f"{names.count(name)} operators are called {name!r}; choose by index: {at}")
    if name not in names:
        raise _Refused(f"there is no operator {name!r} here; {plugins.did_you_mean(name, names)}")
    index = names.index(name)
    entry = node.value[index]
    if isinstance(entry.value, str):
        node.value[index] = entry = Node({name: Node(None, entry.place)}, entry.place)
    return entry
