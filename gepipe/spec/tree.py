"""A YAML text as a tree of plain values, each of which knows where it was written.

Scalars follow YAML 1.2, as editors read them: only `true` and `false` are truth values (`on`,
`off`, `yes`, `no` are text), `1:30` and `2024-01-01` are text, `1e-3` is a number, `010` is ten.
Tags that would build objects are refused, so reading a file never executes anything.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

import yaml

from gepipe.spec.place import Node, Place, Problem, refuse

if TYPE_CHECKING:
    from gepipe.spec.place import Scalar

MAX_DEPTH: Final = 64
_TAG = "tag:yaml.org,2002:"
_WORDS: Final[dict[str, Scalar]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    ".nan": math.nan, ".NaN": math.nan, ".NAN": math.nan,
    ".inf": math.inf, ".Inf": math.inf, ".INF": math.inf,
    "+.inf": math.inf, "+.Inf": math.inf, "+.INF": math.inf,
    "-.inf": -math.inf, "-.Inf": -math.inf, "-.INF": -math.inf,
}  # fmt: skip
_INT: Final = re.compile(r"[-+]?[0-9]{1,400}|0o[0-7]{1,400}|0x[0-9a-fA-F]{1,400}")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
#: Pattern of what an unquoted scalar must look like to be a number.
NUMBER: Final = f"{_INT.pattern}|{_FLOAT.pattern}"


def parse(text: str, origin: str, problems: list[Problem], place: Place | None = None) -> Node:
    """Read a YAML text that holds one document.

    Args:
        text: The YAML.
        origin: What to call the text in an error.
        problems: Gets what is wrong but leaves the rest readable: double keys, refused tags.
        place: Where all of it was written, if not in a file.

    Raises:
        ConfigError: The text is not YAML.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times as fast
    try:
        events = list(yaml.parse(text.removeprefix("\ufeff"), Loader=loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        refuse([_syntax(text, mark.line if mark else 0, error, place)], origin)
    except yaml.reader.ReaderError as error:
        line = 1 + text.count("\n", 0, max(text.find(chr(error.character)), 0))
        problem = f"not valid YAML: character {error.character:#06x} is not allowed"
        refuse([Problem(place or Place(line=line), "", problem)], origin)
    builder = _Builder(iter(events), problems, place)
    try:
        return builder.document()
    except _Fatal as error:
        refuse([*problems, Problem(error.place, "", str(error))], origin)


def _syntax(text: str, line: int, error: yaml.MarkedYAMLError, place: Place | None) -> Problem:
    lines = text.splitlines() or [""]
    bad = lines[min(line, len(lines) - 1)]
    if "\t" in bad[: len(bad) - len(bad.lstrip())]:
        what = "a tab stands where YAML wants spaces for indentation"
    else:
        said = (error.context, error.problem)
        what = "not valid YAML: " + " ".join(part for part in said if part)
    return Problem(place or Place(line=line + 1), "", what)


class _Fatal(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, place: Place, text: str) -> None:
        super().__init__(text)
        self.place = place


class _Builder:
    """Turns parser events into nodes; needs no constructor, so nothing can be constructed."""

    def __init__(self, events: Any, problems: list[Problem], place: Place | None) -> None:
        self._events = events
        self._problems = problems
        self._place = place
        self._anchors: dict[str, Node | None] = {}

    def document(self) -> Node:
        next(self._events)
        event = next(self._events)
        if isinstance(event, yaml.StreamEndEvent):
            raise _Fatal(
                self._place or Place(), "the file is empty; expected a mapping with the key stages"
            )
        root = self._node(next(self._events), 0)
        next(self._events)
        extra = next(self._events)
        if not isinstance(extra, yaml.StreamEndEvent):
            raise _Fatal(self._where(extra), "a second document begins; expected one in a file")
        return root

    def _node(self, event: Any, depth: int) -> Node:
        place = self._where(event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), place)
        if depth > MAX_DEPTH:
            raise _Fatal(place, f"nested more than {MAX_DEPTH} levels deep")
        if event.anchor:
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node = Node(self._scalar(event, place), place)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._check_tag(event.tag, "seq", place)
            node = Node(self._items(depth), place)
        else:
            self._check_tag(event.tag, "map", place)
            node = self._mapping(place, depth)
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, anchor: str, place: Place) -> Node:
        if anchor not in self._anchors:
            raise _Fatal(place, f"*{anchor} has no &{anchor} before it")
        node = self._anchors[anchor]
        if node is None:
            raise _Fatal(place, f"*{anchor} stands inside of &{anchor}, so it would never end")
        return node

    def _items(self, depth: int) -> list[Node]:
        items = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, depth + 1))
        return items

    def _mapping(self, place: Place, depth: int) -> Node:
        node = Node({}, place)
        merged: list[Node] = []
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            where = self._where(event)
            if not isinstance(event, yaml.ScalarEvent):
                raise _Fatal(where, "a key is not plain text")
            key, child = event.value, self._node(next(self._events), depth + 1)
            if key == "<<" and event.implicit[0]:
                merged += child.value if isinstance(child.value, list) else [child]
            elif key in node.keys:
                first = node.keys[key]
                seen = f" on line {first.line}" if not first.override else ""
                self._problems.append(Problem(where, key, f"the key is written twice, first{seen}"))
            else:
                node.put(key, child)
                node.keys[key] = where
        for source in merged:
            if not isinstance(source.value, dict):
                raise _Fatal(place, "<< must name a mapping, or a list of mappings")
            for key, child in source.value.items():
                if key not in node.keys:
                    node.put(key, child)
                    node.keys[key] = source.keys[key]
        return node

    def _scalar(self, event: Any, place: Place) -> Scalar:
        text: str = event.value
        if event.tag in (None, "!"):
            return resolve(text) if event.implicit[0] and event.tag is None else text
        kind = event.tag.removeprefix(_TAG)
        kinds = {"str": str, "int": int, "float": float, "bool": bool, "null": type(None)}
        if not event.tag.startswith(_TAG) or kind not in kinds:
            self._check_tag(event.tag, "", place)
            return text
        value = text if kind == "str" else resolve(text)
        if kind == "float" and type(value) is int:
            value = float(value)
        if type(value) is not kinds[kind]:
            self._problems.append(Problem(place, "", f"{text!r} is not what its tag !!{kind} says"))
        return value

    def _check_tag(self, tag: str | None, kind: str, place: Place) -> None:
        if tag not in (None, "!", _TAG + kind):
            name = str(tag).replace(_TAG, "!!")
            self._problems.append(
                Problem(place, "", f"the tag {name} is refused: a pipeline file holds plain data")
            )

    def _where(self, event: Any) -> Place:
        return self._place or Place(line=event.start_mark.line + 1)


def resolve(text: str) -> Scalar:
    """Return what an unquoted scalar means in YAML 1.2."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    number = float(text) if _FLOAT.fullmatch(text) else math.inf
    return number if math.isfinite(number) else text
