"""Writes the reference of the pipeline file, from the same descriptions as the schema.

`python -m gepipe.spec.reference [--zh]` prints it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from gepipe import docstrings, plugins
from gepipe.spec.chain import STAGES, USUAL_ROLES
from gepipe.spec.keys import KEYS, PROFILE_KEYS, STAGE_KEYS, Accepted
from gepipe.spec.model import PipelineSpec
from gepipe.spec.parts import shorthand_of
from gepipe.spec.profile import PRESETS, Profile
from gepipe.spec.schema import known_parts, part_schema, plain_default
from gepipe.spec.stages import Section

_TEXTS: Final = Path(__file__).parent


@cache
def texts(language: str) -> dict[str, Any]:
    """Return the fixed texts of the page and the translations of what is derived.

    Args:
        language: `en` or `zh`.
    """
    data = (_TEXTS / f"reference_{language}.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(data)
    return loaded


def reference(language: str = "en") -> str:
    """Return the page as Markdown.

    Args:
        language: `en` or `zh`. Operators, sources and sinks are described in English on both.
    """
    return "\n".join(_page(language)).rstrip() + "\n"


def _page(language: str) -> Iterator[str]:
    fixed = texts(language)
    yield fixed["intro"]
    yield f"## {fixed['pipeline']}\n"
    yield from _keys("pipeline", PipelineSpec, KEYS, language)
    usual = {role: name for name, role in USUAL_ROLES.items()}
    for role, cls in STAGES.items():
        yield f"\n## `{usual.get(role, role)}` ({fixed['role']} `{role}`)\n"
        yield fixed["stages"][role] + "\n"
        yield from _keys(role, cls, STAGE_KEYS, language)
    yield f"\n## {fixed['profiles']}\n"
    yield fixed["profiles_note"]
    yield from _keys("profile", Profile, PROFILE_KEYS, language)
    yield ""
    yield from _presets(fixed)
    for role in ("pre", "mid", "post"):
        yield f"\n## {fixed['operators'][role]}\n"
        if role == "pre":
            yield fixed["operators_note"]
        yield from _parts("ops", fixed, role)
    for kind in ("sources", "sinks"):
        yield f"\n## {fixed[kind]}\n"
        yield fixed[f"{kind}_note"]
        yield from _parts(kind, fixed)
    yield f"\n## {fixed['engines']}\n"
    yield fixed["engines_note"]
    yield from _engines(fixed)
    yield "\n" + fixed["outro"]


def _keys(
    section: str, cls: type[Section], accepted: dict[str, Accepted], language: str
) -> Iterator[str]:
    fixed = texts(language)
    yield from _head(fixed["columns"])
    for name, field in cls.model_fields.items():
        words = accepted[name].words
        if name == "role":
            words = f"`{section}`"
        words = fixed.get("words", {}).get(words, words)
        text = fixed["keys"][f"{section}.{name}"] if "keys" in fixed else str(field.description)
        default = plain_default(field)
        if isinstance(default, float) and default.is_integer():
            default = int(default)
        shown = fixed["required"] if field.is_required() else _code(default)
        if name == "role":
            shown = fixed["by_name"]
        elif name == "timeout" and default is not None:
            shown = f"`{default}s`"
        yield _row(f"`{name}`", words, shown, text)


def _presets(fixed: dict[str, Any]) -> Iterator[str]:
    yield from _head([fixed["columns"][0], *(f"`{name}`" for name in PRESETS)])
    for key in Profile.model_fields:
        if key == "preset":
            continue
        said = [getattr(preset, key) for preset in PRESETS.values()]
        if key == "max_wait":
            said = [f"{seconds * 1000:g}ms" for seconds in said]
        yield _row(f"`{key}`", *(_code(value) for value in said))


def _parts(kind: plugins.Kind, fixed: dict[str, Any], role: str = "") -> Iterator[str]:
    for name, cls in known_parts(kind, role).items():
        if cls.__module__.partition(".")[0] != "gepipe":  # the page describes gepipe's own
            continue
        if role == "mid" and getattr(cls, "stage", "") != "mid":
            continue
        schema = part_schema(cls)
        field = shorthand_of(cls)
        if role == "post" and getattr(cls, "stage", "") == "both":
            yield f"\n### `{name}` ({fixed['roles']})\n"
            yield fixed["as_in_pre"]
            continue
        yield f"\n### `{name}`\n"
        yield docstrings.summary(cls)
        for paragraph in docstrings.body(cls).splitlines():
            yield f"\n{paragraph}"
        if field:
            yield f"\n{fixed['shorthand'].format(name=name, field=field)}"
        if not schema.get("properties"):
            continue
        yield ""
        yield from _head(fixed["parameter_columns"])
        for parameter, about in schema["properties"].items():
            needed = parameter in schema.get("required", [])
            default = fixed["required"] if needed else _code(about.get("default"))
            text = about.get("description", "")
            yield _row(f"`{parameter}`", value_words(about), default, text)


def _engines(fixed: dict[str, Any]) -> Iterator[str]:
    for name in sorted(plugins.names("engines")):
        cls = plugins.load("engines", name)
        options = docstrings.parameters(cls)
        if cls.__module__.partition(".")[0] != "gepipe" or not options:
            continue
        yield f"\n### `{name}`\n"
        yield from _head(fixed["option_columns"])
        for option, text in options.items():
            yield _row(f"`{option}`", text)


def value_words(schema: dict[str, Any]) -> str:  # noqa: PLR0911 - one a kind of schema
    """Return in words what a JSON schema of a parameter accepts."""
    if "anyOf" in schema:
        options = (option for option in schema["anyOf"] if option != {"type": "null"})
        return " or ".join(dict.fromkeys(value_words(option) for option in options))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        fixed = schema.get("prefixItems")
        if fixed:
            return f"list of {len(fixed)}: {', '.join(value_words(item) for item in fixed)}"
        return f"list of {value_words(schema['items'])}" if "items" in schema else "list"
    if schema.get("format") == "path":
        return "path"
    names = {"string": "text", "boolean": "`true`, `false`", "object": "mapping", "null": "nothing"}
    kind = str(schema.get("type", "any value"))
    return names.get(kind, kind)


def _code(value: Any) -> str:
    if value in (None, ""):
        return ""
    return f"`{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}`"


def _head(columns: list[str]) -> Iterator[str]:
    yield _row(*columns)
    yield _row(*["---"] * len(columns))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    sys.stdout.write(reference("zh" if "--zh" in sys.argv[1:] else "en"))
