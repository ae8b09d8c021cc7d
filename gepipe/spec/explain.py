"""Says in plain words what validation found, in place of pydantic's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from pydantic_core import ErrorDetails, PydanticCustomError

from gepipe.spec.units import shown

Loc = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing that is wrong with a value.

    Attributes:
        loc: The way to it: keys and indexes, with pydantic's union tags among them.
        text: What is wrong.
        wanted: For a wrong kind of value what was expected, so that the alternatives of a union
            can be told in one message; empty for anything else.
        missing: Whether `loc` names a key that is not there.
    """

    loc: Loc
    text: str
    wanted: str = ""
    missing: bool = False


def nested(issues: Iterable[Issue]) -> PydanticCustomError:
    """Return an error for a validator to raise that carries the issues of what it contains."""
    found = list(issues)
    text = "; ".join(issue.text for issue in found)
    return PydanticCustomError("nested", text, {"issues": found})


def problem(text: str, *loc: int | str) -> PydanticCustomError:
    """Return an error for a validator to raise that tells one issue, at `loc` within the value."""
    return nested([Issue(loc, text)])


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Say that a key is unknown, with the nearest known one or all of them."""
    names = sorted(known)
    near = get_close_matches(key, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names) or 'none'}"
    return f"unknown key {key!r}; {hint}"


def issues_of(errors: Iterable[ErrorDetails], known: Iterable[str]) -> list[Issue]:
    """Translate pydantic's errors, those of nested parts included.

    Args:
        errors: What `ValidationError.errors()` returns.
        known: The keys of what was validated.
    """
    names = list(known)
    found: list[Issue] = []
    for error in _last_missing(errors):
        ctx: dict[str, Any] = error.get("ctx", {})
        if error["type"] == "nested":
            found += [
                Issue(error["loc"] + issue.loc, issue.text, issue.wanted, issue.missing)
                for issue in ctx["issues"]
            ]
        else:
            found.append(_issue(error, ctx, names))
    return found


def _last_missing(errors: Iterable[ErrorDetails]) -> Iterator[ErrorDetails]:
    """Leave out that a list lacks its second value where it lacks its third, too."""
    found = list(errors)
    lacking = [error["loc"] for error in found if error["type"] == "missing"]
    for error in found:
        *owner, last = error["loc"] or ("",)
        more = isinstance(last, int) and (*owner, last + 1) in lacking
        if error["type"] != "missing" or not more:
            yield error


def merged(issues: Iterable[Issue]) -> list[Issue]:
    """Make one issue of those that a union's alternatives gave for one place.

    Args:
        issues: With the union tags taken out of their `loc`.
    """
    result: list[Issue] = []
    groups: dict[Loc, list[Issue]] = {}
    for issue in issues:
        groups.setdefault(issue.loc, []).append(issue)
    deeper = {loc[:n] for loc in groups for n in range(len(loc))}
    for loc, same in groups.items():
        firm = [issue for issue in same if not issue.wanted]
        if firm:
            result += firm
        elif loc not in deeper:  # else another alternative got further
            wanted = " or ".join(dict.fromkeys(issue.wanted for issue in same))
            got = same[0].text.rpartition(", got ")[2]
            result.append(Issue(loc, f"expected {wanted}, got {got}"))
    return result


_KINDS: Final = {
    "int": "an integer", "float": "a number", "string": "text", "bool": "true or false",
    "path": "a path", "tuple": "a list", "list": "a list", "set": "a list", "frozen_set": "a list",
    "dict": "a mapping", "mapping": "a mapping", "dataclass": "a mapping", "model": "a mapping",
    "none_required": "nothing", "is_instance_of": "another kind of value",
}  # fmt: skip
_LIMITS: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "greater_than_equal": lambda ctx: f"expected at least {ctx['ge']}",
    "greater_than": lambda ctx: f"expected more than {ctx['gt']}",
    "less_than_equal": lambda ctx: f"expected at most {ctx['le']}",
    "less_than": lambda ctx: f"expected less than {ctx['lt']}",
    "multiple_of": lambda ctx: f"expected a multiple of {ctx['multiple_of']}",
    "finite_number": lambda _: "expected a finite number",
    "string_too_short": lambda ctx: f"expected text of {ctx['min_length']} or more characters",
    "string_pattern_mismatch": lambda ctx: f"expected text like {ctx['pattern']}",
}


def _issue(error: ErrorDetails, ctx: dict[str, Any], known: list[str]) -> Issue:  # noqa: PLR0911
    kind, loc, value = error["type"], error["loc"], error["input"]
    if kind in ("missing", "missing_argument", "missing_keyword_only_argument"):
        if isinstance(loc[-1], int):  # of a list of fixed length; the last of these tells it
            return Issue(loc[:-1], f"expected {loc[-1] + 1} values, got {len(value)}")
        return Issue(loc, "missing key", missing=True)
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return Issue(loc, unknown_key(str(loc[-1]), known if len(loc) == 1 else ()))
    if kind in ("literal_error", "enum"):
        return _choice(loc, value, ctx["expected"])
    if kind in ("too_long", "too_short"):
        bound = "at most" if kind == "too_long" else "at least"
        count = ctx.get("max_length", ctx.get("min_length"))
        return Issue(loc, f"expected {bound} {count} values, got {ctx['actual_length']}")
    if kind in _LIMITS:
        return Issue(loc, f"{_LIMITS[kind](ctx)}, got {shown(value)}")
    base = kind.removesuffix("_type").removesuffix("_parsing")
    base = "int" if base == "int_from_float" else base
    if base in _KINDS:
        return Issue(loc, f"expected {_KINDS[base]}, got {shown(value)}", _KINDS[base])
    return Issue(loc, error["msg"].removeprefix("Value error, "))


def _choice(loc: Loc, value: Any, expected: str) -> Issue:
    choices = expected.replace("'", "").replace(" or ", ", ").split(", ")
    text = choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    near = get_close_matches(value, choices, n=1) if isinstance(value, str) else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return Issue(loc, f"expected {text}, got {shown(value)}{hint}", "" if near else text)
