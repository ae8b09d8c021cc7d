"""Reads a pipeline file and reports everything that is wrong with it at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from gepipe import bundle
from gepipe.errors import ConfigError, reason_of
from gepipe.regular import read_regular
from gepipe.spec.explain import Issue, issues_of, merged
from gepipe.spec.model import PipelineSpec
from gepipe.spec.overrides import apply
from gepipe.spec.place import Node, Place, Problem, refuse
from gepipe.spec.tree import parse
from gepipe.spec.units import shown

#: Far more than a pipeline file takes.
_MAX_BYTES: Final = 16 << 20


def load(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> PipelineSpec:
    """Read a pipeline file.

    Args:
        path: The YAML file.
        overrides: Changes such as `preprocess.batch_size=16`, applied before validation.

    Raises:
        ConfigError: Lists every problem as `file:line: key: problem`, one a line.
    """
    file = Path(path)
    try:
        data = read_regular(file, _MAX_BYTES)
    except FileNotFoundError:
        ready = file.stem in bundle.pipeline_names()
        hint = f"; `gepipe init {file.stem}` writes the ready pipeline of that name" * ready
        raise ConfigError(f"{file}: there is no such file{hint}") from None
    except IsADirectoryError:
        raise ConfigError(f"{file}: is a folder; expected a pipeline file (YAML)") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {reason_of(error)}") from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        bad = f"byte {data[error.start]:#04x} is not UTF-8; save the file in UTF-8"
        raise ConfigError(f"{file}:{line}: {bad}") from None
    spec = _loads(text, str(file), overrides, file.parent)
    spec._origin = file  # noqa: SLF001 - the loader is its only writer
    return spec


def loads(text: str, origin: str = "pipeline.yaml", overrides: Sequence[str] = ()) -> PipelineSpec:
    """Read a pipeline from text.

    Args:
        text: The YAML.
        origin: What to call it in error messages.
        overrides: Changes such as `preprocess.batch_size=16`, applied before validation.

    Raises:
        ConfigError: Lists every problem as `origin:line: key: problem`, one a line.
    """
    return _loads(text, origin, overrides, None)


def _loads(text: str, origin: str, overrides: Sequence[str], base: Path | None) -> PipelineSpec:
    problems: list[Problem] = []
    root = _pipeline(parse(text, origin, problems), origin, problems)
    if overrides:
        root.plain(origin)  # refuses a tree that is too large to copy
        root.unshare()
        apply(root, overrides, problems)
    spec = None
    try:
        spec = PipelineSpec.model_validate(root.plain(origin), context={"base": base})
    except ValidationError as error:
        found = issues_of(error.errors(include_url=False), PipelineSpec.model_fields)
        problems += _placed(root, found)
    if problems or spec is None:
        refuse(problems, origin)
    return spec


def _pipeline(document: Node, origin: str, problems: list[Problem]) -> Node:
    """Return the mapping that holds `stages`: the document, or what its key `pipeline` holds."""
    root = document
    if isinstance(document.value, dict) and "pipeline" in document.value:
        for key, place in document.keys.items():
            if key != "pipeline" and not key.startswith("x-"):
                text = "stands beside 'pipeline'; expected below it"
                problems.append(Problem(place, key, text))
        root = document.value["pipeline"]
    if not isinstance(root.value, dict):
        text = f"expected a mapping with the key stages, got {shown(root.value)}"
        refuse([*problems, Problem(root.place, "", text)], origin)
    for key in [key for key in root.value if key.startswith("x-")]:  # a place for anchors
        del root.value[key]
    return root


def _placed(root: Node, issues: list[Issue]) -> list[Problem]:
    located = [_locate(root, issue) for issue in issues]
    places = {issue.loc: (place, key) for issue, place, key in located}
    return [Problem(*places[issue.loc], issue.text) for issue in merged(i for i, _, _ in located)]


def _locate(root: Node, issue: Issue) -> tuple[Issue, Place, str]:
    """Follow an issue's way through the tree, past the parts that are only pydantic's."""
    node, place, key = root, root.place, ""
    way: list[int | str] = []
    for part in issue.loc:
        if isinstance(node.value, dict) and part in node.value:
            place = node.keys[str(part)]
            node = node.value[str(part)]
            key = f"{key}.{part}" if key else str(part)
        elif isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            place = node.place
            key = _name_of(node, key, part)
        elif node.value == part and key.endswith("]"):  # an operator without parameters
            key = f"{key}.{part}"
        else:
            continue
        way.append(part)
    last = issue.loc[-1] if issue.missing else None
    if last is not None and way[-1:] == [last]:
        issue = replace(issue, text="has no value")
    elif last is not None:
        key = f"{key}.{last}" if key else str(last)
        way.append(last)
        if place.override:  # which shows no key of its own
            issue = replace(issue, text=f"missing key {str(last)!r} beside it")
    return replace(issue, loc=tuple(way)), place, key


def _name_of(node: Node, key: str, index: int) -> str:
    if key == "stages" and isinstance(node.value, dict):
        name = node.value.get("name")
        if name is not None and isinstance(name.value, str):
            return f"{key}.{name.value}"
    return f"{key}[{index}]"
