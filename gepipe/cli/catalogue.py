"""What is installed, for `gepipe ops` and `gepipe schema`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from gepipe import docstrings, plugins
from gepipe.cli.text import harmless, print_error, print_out
from gepipe.errors import ConfigError, PluginError

_KINDS: Final[dict[plugins.Kind, str]] = {
    "ops": "operator",
    "sources": "source",
    "sinks": "sink",
    "engines": "engine",
}


def write_schema(output: Path | None) -> None:
    """Write the JSON schema of a pipeline file.

    Raises:
        ConfigError: The file cannot be written.
    """
    from gepipe.spec.schema import json_schema

    text = json.dumps(json_schema(), indent=2, ensure_ascii=False)
    if output is None:
        print_out(text)
        return
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{output}: cannot be written: {error.strerror}") from error
    print_error(f"written: {harmless(str(output))}")


def show_parts(name: str | None, *, everything: bool, as_json: bool) -> None:
    """Show the operators, or everything, or one of them.

    Raises:
        ConfigError: Nothing is called `name`.
    """
    kinds = _KINDS if everything or name else {"ops": _KINDS["ops"]}
    parts = [_part(kind, each) for kind in kinds for each in plugins.names(kind)]  # type: ignore[arg-type]
    if name is not None:
        known = sorted({part["name"] for part in parts})
        parts = [part for part in parts if part["name"] == name]
        if not parts:
            raise ConfigError(f"nothing is called {name!r}; {plugins.did_you_mean(name, known)}")
    if as_json:
        print_out(json.dumps(parts))
    elif name is not None:
        print_out("\n\n".join("\n".join(_page(part)) for part in parts))
    else:
        _list(parts, everything=everything)


def _part(kind: plugins.Kind, name: str) -> dict[str, Any]:
    part: dict[str, Any] = {"kind": _KINDS[kind], "name": name}
    try:
        cls = plugins.load(kind, name)
    except PluginError as error:
        return part | {"error": str(error)}
    part |= {"summary": docstrings.summary(cls), "description": docstrings.body(cls)}
    if kind == "engines":
        options = docstrings.parameters(cls).items()
        return part | {"parameters": [{"name": n, "description": text} for n, text in options]}
    if kind == "ops":
        part["stage"] = getattr(cls, "stage", "both")
    return part | {"shorthand": getattr(cls, "shorthand", None), "parameters": _parameters(cls)}


def _parameters(cls: type) -> list[dict[str, Any]]:
    from gepipe.spec.reference import value_words
    from gepipe.spec.schema import part_schema

    try:
        schema = part_schema(cls)
    except Exception as error:  # noqa: BLE001 - a plugin of somebody else's
        return [{"name": "?", "error": f"{type(error).__name__}: {error}"}]
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "type": value_words(about).replace("`", ""),
            "required": name in required,
            "default": about.get("default"),
            "description": about.get("description", ""),
        }
        for name, about in schema.get("properties", {}).items()
    ]


def _list(parts: list[dict[str, Any]], *, everything: bool) -> None:
    width = max(len(part["name"]) for part in parts)
    groups = {
        "operators for pre stages": [p for p in parts if p.get("stage") in ("pre", "both")],
        "operators for mid stages, between two models": [
            p for p in parts if p.get("stage") == "mid"
        ],
        "operators for post stages": [p for p in parts if p.get("stage") in ("post", "both")],
        "sources": [p for p in parts if p["kind"] == "source"],
        "sinks": [p for p in parts if p["kind"] == "sink"],
        "engines": [p for p in parts if p["kind"] == "engine"],
        "broken": [p for p in parts if "error" in p and p["kind"] == "operator"],
    }
    for title, group in groups.items():
        if not group:
            continue
        print_out(f"{title}:")
        for part in group:
            text = part.get("error") or part["summary"]
            print_out(harmless(f"  {part['name'].ljust(width)}  {text}"))
        print_out("")
    more = "" if everything else "; `gepipe ops --all` lists sources, sinks and engines too"
    print_out(f"`gepipe ops NAME` shows one with its parameters{more}")


def _page(part: dict[str, Any]) -> Iterator[str]:
    stage = part.get("stage", "both")
    where = "" if stage == "both" else f" for {stage} stages"
    yield f"{part['name']} ({part['kind']}{where})"
    if "error" in part:
        yield f"  {harmless(part['error'])}"
        return
    yield f"  {part['summary']}"
    for paragraph in part["description"].splitlines():
        yield f"  {paragraph}"
    if part.get("shorthand"):
        yield f"  short form: `{part['name']}: value` sets {part['shorthand']}"
    for each in part.get("parameters", ()):
        if "error" in each:
            yield f"  parameters cannot be told: {harmless(each['error'])}"
            continue
        if "type" not in each:  # of an engine, which reads its options itself
            yield f"\n  {each['name']}: {each['description']}"
            continue
        default = "required" if each["required"] else f"default {json.dumps(each['default'])}"
        yield f"\n  {each['name']}: {each['type']} ({default})"
        yield f"      {each['description']}"
