"""Reading values of a parsed YAML file: what is wrong raises a ValueError that says so."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

_UNITS: Final = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def mapping(value: object, what: str, problems: list[str]) -> dict[str, Any]:
    """Return a mapping of texts, or note the problem."""
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return value
    problems.append(f"{what}: a mapping was expected, not {value!r}")
    return {}


def size(value: object) -> int:
    """Return a size in bytes, such as of `24GiB`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(|KiB|MiB|GiB)", str(value))
    if found is None or isinstance(value, bool):
        raise ValueError(f"a size such as 24GiB was expected, not {value!r}")
    return int(float(found[1]) * _UNITS[found[2]])


def number(value: object) -> float:
    """Return a number from 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"a number was expected, not {value!r}")  # noqa: TRY004 - reported as one
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"a number from 0 was expected, not {value!r}")
    return float(value)


def count(value: object) -> int:
    """Return a whole number from 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"a whole number from 0 was expected, not {value!r}")
    return value


def flag(value: object) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise ValueError(f"true or false was expected, not {value!r}")  # noqa: TRY004
    return value


def text(value: object) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"a text was expected, not {value!r}")
    return value


def one_of(*choices: str) -> Callable[[object], str]:
    """Return a reader of one of a few texts."""

    def read(value: object) -> str:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)} was expected, not {value!r}")
        return str(value)

    return read


def section(kind: type, readers: Mapping[str, Callable[[object], Any]]) -> Callable[..., Any]:
    """Return a reader of a mapping into a dataclass."""

    def read(value: object) -> Any:
        return kind(**checked(value, readers))

    return read


def checked(value: object, readers: Mapping[str, Callable[[object], Any]]) -> dict[str, Any]:
    """Return a mapping of which every value is read, and every key known."""
    problems: list[str] = []
    found = mapping(value, "section", problems)
    problems += [f"{key} is unknown; known: {', '.join(readers)}" for key in found.keys() - readers]
    if problems:
        raise ValueError("; ".join(problems))
    return {key: readers[key](each) for key, each in found.items()}
