"""Operators, sources and sinks as the YAML names them: `resize`, `{threshold: 0.5}`, a bare path.

What is registered under the name is a frozen dataclass; its fields are the parameters. A bare value
goes to the field that the class calls its `shorthand`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePath
from typing import Any, Final, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from gepipe import plugins
from gepipe.errors import InternalError, PluginError
from gepipe.io.videos import is_video
from gepipe.spec.explain import Issue, issues_of, nested, problem
from gepipe.spec.paths import resolve_fields
from gepipe.spec.units import shown

WORDS: Final[dict[plugins.Kind, str]] = {
    "ops": "operator",
    "engines": "engine",
    "sources": "source",
    "sinks": "sink",
}

#: Sinks that are only chosen by their names: what they write ends in .jsonl or .json.
_NAMED_SINKS: Final = frozenset({"annotated", "coco", "contact_sheet", "video"})


def build(kind: plugins.Kind, name: str, value: Any, base: Path | None, *, role: str = "") -> Any:
    """Return the operator, source or sink that the YAML asks for.

    Args:
        kind: Where to look the name up.
        name: The registered name.
        value: Its parameters: a mapping, nothing, or a bare value for the shorthand field.
        base: Folder that input paths may be relative to.
        role: For an operator the role of its stage.

    Raises:
        PydanticCustomError: With an `Issue` for everything that is wrong.
    """
    try:
        cls = plugins.load(kind, name)
    except PluginError as error:
        if name in plugins.names(kind):
            raise problem(str(error), name) from error
        hint = plugins.did_you_mean(name, plugins.names(kind))
        raise problem(f"unknown {WORDS[kind]} {name!r}; {hint}", name) from None
    if (place := not_finite(value)) is not None:
        raise nested([Issue((name, *place), "expected a finite number, got .nan or .inf")])
    stage = getattr(cls, "stage", "both")
    if role and stage not in (role, "both"):
        text = f"{name!r} is an operator for {stage} stages; this is a {role} stage"
        raise problem(text, name)
    try:
        part = adapter(cls).validate_json(_params(cls, name, value), strict=True)
    except ValidationError as error:
        found = issues_of(error.errors(include_url=False), parameters(cls))
        raise nested(dataclasses.replace(i, loc=(name, *i.loc)) for i in found) from None
    except (PydanticUserError, NameError, TypeError) as error:
        why = str(error).splitlines()[0]
        text = f"{name!r} does not declare its parameters as a dataclass can: {why}"
        raise problem(text, name) from error
    if kind == "sinks":  # outputs are relative to the current directory
        return part
    paths = {"path", "paths", shorthand_of(cls) or "path"} if kind == "sources" else ()
    return resolve_fields(part, base, paths)


def splitters() -> list[str]:
    """Return the names of the operators that split an item, for a mid stage."""
    found = []
    for name in plugins.names("ops"):
        with suppress(PluginError):  # told to whoever asks for that one
            if getattr(plugins.load("ops", name), "stage", "") == "mid":
                found.append(name)
    return found


def not_finite(value: Any) -> tuple[int | str, ...] | None:
    """Return the way to a NaN or an infinity within plain values, None if there is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return ()
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, list | tuple):
        inner = enumerate(value)
    for key, item in inner:
        if (found := not_finite(item)) is not None:
            return (key if isinstance(key, int) else str(key), *found)
    return None


def name_of(kind: plugins.Kind, part: Any) -> str:
    """Return the name that the class of an operator, source or sink is registered under."""
    cls = type(part)
    names = plugins.names(kind)
    likely = [name for name in names if name.replace("_", "") in cls.__name__.lower()]
    for name in (*likely, *names):
        try:
            found = plugins.load(kind, name)
        except PluginError:  # a broken plugin is not the one that exists
            continue
        if found is cls:
            return name
    raise InternalError(f"{cls.__module__}.{cls.__qualname__} is not registered in gepipe.{kind}")


def params_of(part: Any) -> dict[str, Any]:
    """Return every parameter of an operator, source or sink as plain JSON values."""
    cls: type = type(part)
    plain = adapter(cls).dump_python(part, mode="json", warnings=False)
    return {name: plain[name] for name in parameters(cls) if name in plain}


def parameters(cls: type) -> list[str]:
    """Return the names of the parameters that the YAML may set."""
    return [field.name for field in dataclasses.fields(cls) if field.init]


@cache
def adapter(cls: type) -> TypeAdapter[Any]:
    """Return the validator of one class of operators, sources or sinks."""
    return TypeAdapter(cls)


def shorthand_of(cls: type) -> str | None:
    """Return the field that a bare value goes to, or None where the class has none."""
    name: str | None = getattr(cls, "shorthand", None)
    return name


def split_entry(entry: Any, what: str) -> tuple[str, Any]:
    """Return name and parameters of `name` or of `{name: parameters}`.

    Raises:
        PydanticCustomError: It is neither.
    """
    if isinstance(entry, str):
        return entry, None
    if isinstance(entry, Mapping) and len(entry) == 1:
        ((name, value),) = entry.items()
        return str(name), value
    if isinstance(entry, Mapping) and entry:
        keys = ", ".join(map(str, entry))
        text = (
            f"expected one {what}, got {len(entry)}: {keys}; indent its parameters below its name"
        )
        raise problem(text)
    text = (
        f"expected the name of an {what}"
        if what[0] in "aeiou"
        else f"expected the name of a {what}"
    )
    raise problem(f"{text} or a mapping of its name, got {shown(entry)}")


def source_of(value: Any, base: Path | None = None) -> Any:
    """Return the source for a path, a list of paths, or `{name: parameters}`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return value
    if isinstance(value, PurePath):
        value = str(value)
    if isinstance(value, str) or (
        isinstance(value, Sequence) and value and all(isinstance(v, str | PurePath) for v in value)
    ):
        paths = value if isinstance(value, str) else [str(path) for path in value]
        videos = all(map(is_video, [paths] if isinstance(paths, str) else paths))
        return build("sources", "videos" if videos else "images", paths, base)
    if not isinstance(value, Mapping) or not value:
        wanted = "a path, a list of paths, or a mapping such as {images: photos/}"
        raise problem(f"expected {wanted}, got {shown(value)}")
    return build("sources", *split_entry(value, "source"), base)


def sink_of(value: Any) -> Any:
    """Return the sink for a path, chosen by its extension, or for `{name: parameters}`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return value
    if not isinstance(value, str | PurePath | Mapping) or not value:
        wanted = "a path such as out/results.jsonl, or a mapping such as {jsonl: out/results.jsonl}"
        raise problem(f"expected {wanted}, got {shown(value)}")
    if isinstance(value, Mapping):
        return build("sinks", *split_entry(value, "sink"), None)
    suffix = PurePath(value).suffix.removeprefix(".").lower()
    if suffix not in sink_endings():
        known = ", ".join(f".{name}" for name in sink_endings())
        got = f"{str(value)!r} ends in none of {known}"
        if is_video(str(value)):
            lines = PurePath(value).with_suffix(".jsonl")
            raise problem(f"{got}; films lie in a folder beside lines, {{video: {lines}}}")
        raise problem(f"{got}; write one of them, or {{name: path}} for another file name")
    return build("sinks", suffix, str(value), None)


def sink_endings() -> list[str]:
    """Return the endings that choose a sink: their names, but for those that name no file type."""
    return [name for name in plugins.names("sinks") if name not in _NAMED_SINKS]


def _params(cls: type, name: str, value: Any) -> str:
    if isinstance(value, Mapping) or value is None:
        return json.dumps(value or {})
    field = shorthand_of(cls)
    if field is None:
        example = f"{{{name}: {{{(parameters(cls) or ['parameter'])[0]}: …}}}}"
        wanted = f"a mapping of parameters such as {example}"
        raise problem(f"expected {wanted}, got {shown(value)}", name)
    hint = get_type_hints(cls, include_extras=True)[field]
    if isinstance(value, str) and _is_tuple(hint):
        value = [value]
    return json.dumps({field: value})


def _is_tuple(hint: Any) -> bool:
    return get_origin(hint) is tuple
