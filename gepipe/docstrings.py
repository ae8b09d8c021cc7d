"""Reads Google-style docstrings, so that one text serves the code, the schema and the commands."""

from __future__ import annotations

import inspect
import re
from typing import Final

_SECTION: Final = re.compile(r"(Args|Arguments|Attributes|Parameters):\s*")
_ANY_SECTION: Final = re.compile(r"[A-Z][A-Za-z ]*:\s*")
_ENTRY: Final = re.compile(r"\*{0,2}(?P<name>\w+)\s*(\([^)]*\))?:\s*(?P<text>.*)")


def summary(documented: object) -> str:
    """Return the first paragraph of a docstring as one line; empty where there is none."""
    return _joined(_text(documented).split("\n\n", maxsplit=1)[0].splitlines())


def body(documented: object) -> str:
    """Return the paragraphs between the first one and the first section, a line each."""
    lines = _text(documented).splitlines()
    end = next((i for i, line in enumerate(lines) if _ANY_SECTION.fullmatch(line)), len(lines))
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines[:end]).strip())
    return "\n".join(_joined(paragraph.splitlines()) for paragraph in paragraphs[1:])


def parameters(documented: object) -> dict[str, str]:
    """Return what a docstring says of each parameter, in the order of its sections.

    Args:
        documented: A class, a function, or the text of a docstring. For a class what its bases
            document counts too.
    """
    if isinstance(documented, type):
        found: dict[str, str] = {}
        for cls in reversed(documented.__mro__[:-1]):
            found |= _parameters(_text(cls))
        own = _parameters(_text(documented))
        return own | {name: text for name, text in found.items() if name not in own}
    return _parameters(_text(documented))


def _parameters(text: str) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    inside, indent, name = False, 0, ""
    for line in text.splitlines():
        if line and not line[0].isspace():
            inside, indent, name = _SECTION.fullmatch(line) is not None, 0, ""
            continue
        depth = len(line) - len(line.lstrip())
        if not inside or not line.strip():
            continue
        indent = indent or depth
        entry = _ENTRY.fullmatch(line.strip()) if depth == indent else None
        if entry:
            name = entry["name"]
            found[name] = [entry["text"]]
        elif name:
            found[name].append(line)
    return {key: _joined(lines) for key, lines in found.items()}


def _text(documented: object) -> str:
    if isinstance(documented, str):
        return inspect.cleandoc(documented)
    text = inspect.cleandoc(getattr(documented, "__doc__", None) or "")
    # A dataclass without a docstring gets its signature as one.
    generated = f"{documented.__name__}(" if isinstance(documented, type) else "\0"
    return "" if text.startswith(generated) else text


def _joined(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())
