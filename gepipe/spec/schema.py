"""The JSON schema of a pipeline file, for editors to complete and check it.

It accepts what the loader accepts. What the loader checks beyond a schema's means (that values fit
each other, that names are unique) is left to the loader.
"""

from __future__ import annotations

import copy
import re
from typing import Any, Final

from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

from gepipe import docstrings, plugins
from gepipe.errors import PluginError
from gepipe.spec.chain import STAGES, USUAL_ROLES, implied_role
from gepipe.spec.keys import KEYS, PROFILE_KEYS, STAGE_KEYS, Accepted
from gepipe.spec.model import PipelineSpec
from gepipe.spec.parts import adapter, shorthand_of, sink_endings
from gepipe.spec.profile import PRESETS, Profile
from gepipe.spec.stages import RESERVED, Section
from gepipe.spec.values import Backend

Schema = dict[str, Any]

_URI: Final = "https://json-schema.org/draft/2020-12/schema"
#: Keys that begin so may hold anything; they are a place to keep YAML anchors.
_EXTENSION: Final = {"^x-": True}


def json_schema() -> Schema:
    """Return the schema, draft 2020-12, with the operators, sources and sinks installed here."""
    definitions: Schema = {
        "pipeline": _section(PipelineSpec, KEYS, ["stages"]) | {"patternProperties": _EXTENSION},
        "stages": _stages(),
        "backend": _backend(),
        "profile": {"anyOf": [{"enum": list(PRESETS)}, _section(Profile, PROFILE_KEYS, [])]},
    }
    for role, cls in STAGES.items():
        definitions[role] = _stage(role, cls)
    for role in ("pre", "mid", "post"):
        definitions[f"{role}_ops"] = {"type": "array", "items": _entries("ops", definitions, role)}
    paths = {"type": "string", "minLength": 1}
    listed = {"type": "array", "items": paths, "minItems": 1}
    definitions["source"] = {"anyOf": [paths, listed, _entries("sources", definitions)]}
    definitions["sink"] = {"anyOf": [_sink_path(), _entries("sinks", definitions)]}
    return {
        "$schema": _URI,
        "title": "gepipe pipeline",
        "description": "A pipeline file, with or without the key `pipeline` around it.",
        "type": "object",
        "if": {"required": ["pipeline"]},
        "then": {
            "properties": {"pipeline": {"$ref": "#/$defs/pipeline"}},
            "patternProperties": _EXTENSION,
            "additionalProperties": False,
        },
        "else": {"$ref": "#/$defs/pipeline"},
        "$defs": definitions,
    }


def part_schema(cls: type) -> Schema:
    """Return the schema of the parameters of an operator, source or sink.

    Descriptions come from the class's docstring.

    Raises:
        PydanticUserError: The class is no dataclass that can be validated.
    """
    schema: Schema = _untitled(adapter(cls).json_schema(ref_template="#/$defs/{model}"))
    texts = docstrings.parameters(cls)
    for name, field in schema.get("properties", {}).items():
        if name in texts:
            field["description"] = texts[name]
    if text := docstrings.summary(cls):
        schema["description"] = text
    return schema


def known_parts(kind: plugins.Kind, role: str = "") -> dict[str, type]:
    """Return the classes of a kind that import, by name; for operators those of one role.

    A mid stage takes operators of all roles.
    """
    found: dict[str, type] = {}
    for name in plugins.names(kind):
        try:
            cls = plugins.load(kind, name)
        except PluginError:  # the loader tells it to whoever asks for that one
            continue
        if not role or role == "mid" or getattr(cls, "stage", "both") in (role, "both"):
            found[name] = cls
    return found


def plain_default(field: FieldInfo) -> Any:
    """Return a key's default as the file would write it; None where there is none."""
    if field.is_required():
        return None
    if isinstance(field.default, Backend):
        return field.default.name
    return list(field.default) if isinstance(field.default, tuple) else field.default


def _section(cls: type[Section], accepted: dict[str, Accepted], required: list[str]) -> Schema:
    properties: Schema = {}
    for name, field in cls.model_fields.items():
        schema = copy.deepcopy(accepted[name].schema)
        properties[name] = schema if name in required else _or_null(schema)
        properties[name]["description"] = field.description
        default = plain_default(field)
        if default is not None:
            properties[name]["default"] = default
    return {
        "type": "object",
        "description": cls.__doc__,
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _stage(role: str, cls: type[Section]) -> Schema:
    required = [key for key, field in cls.model_fields.items() if field.is_required()]
    schema = _section(cls, STAGE_KEYS, required)
    properties = schema["properties"]
    properties["role"]["anyOf"][0] = {"const": role}
    if "ops" in properties:
        ops = properties["ops"]
        if "ops" in required:
            ops["$ref"] = f"#/$defs/{role}_ops"
        else:
            ops["anyOf"][0] = {"$ref": f"#/$defs/{role}_ops"}
    others = {name for name in (*USUAL_ROLES, *STAGES) if implied_role(name) != role}
    properties["name"]["not"] = {"enum": sorted({*others, *RESERVED})}
    return schema


def _stages() -> Schema:
    usual = {role: [name] for name, role in USUAL_ROLES.items()}
    names = {role: [*usual.get(role, []), role] for role in STAGES}
    cases = {
        role: {
            "anyOf": [
                {"properties": {"name": {"enum": names[role]}}, "required": ["name"]},
                {"properties": {"role": {"const": role}}, "required": ["role"]},
            ]
        }
        for role in STAGES
    }
    return {
        "type": "array",
        "minItems": 3,
        "items": {
            "type": "object",
            "properties": {
                "name": {"examples": list(USUAL_ROLES)},
                "role": {"enum": [*STAGES, None]},
            },
            "required": ["name"],
            "anyOf": list(cases.values()),
            "allOf": [
                {"if": case, "then": {"$ref": f"#/$defs/{role}"}} for role, case in cases.items()
            ],
        },
    }


def _backend() -> Schema:
    names = sorted({"auto", *plugins.names("engines")})
    return {"anyOf": [{"enum": names}, _one_of({name: _options_of(name) for name in names})]}


def _options_of(engine: str) -> Schema:
    """Return the schema of an engine's options, as far as it says which it has."""
    schema: Schema = {"type": ["object", "null"], "description": "Options of the engine."}
    try:
        told = docstrings.parameters(plugins.load("engines", engine)) if engine != "auto" else {}
    except PluginError:  # told by `gepipe doctor`
        told = {}
    if told:
        schema["properties"] = {name: {"description": text} for name, text in told.items()}
    return schema


def _entries(kind: plugins.Kind, definitions: Schema, role: str = "") -> Schema:
    """Return the schema of `name` or `{name: parameters}` for all plugins of a kind."""
    bare: list[str] = []
    named: Schema = {}
    for name, cls in known_parts(kind, role).items():
        try:
            params = part_schema(cls)
        except (PydanticUserError, NameError, TypeError):
            named[name] = {}
            continue
        definitions.update(params.pop("$defs", {}))
        named[name] = {"anyOf": [params], "description": params.get("description", name)}
        if field := shorthand_of(cls):
            value = {**params["properties"][field]}
            value.pop("default", None)
            named[name]["anyOf"].append(value)
            if value.get("type") == "array":  # one bare text stands for a list of one
                named[name]["anyOf"].append({"type": "string"})
        if not params.get("required"):
            bare.append(name)
            named[name]["anyOf"].append({"type": "null"})
    entry = _one_of(named)
    return {"anyOf": [{"enum": bare}, entry]} if bare else entry


def _one_of(named: Schema) -> Schema:
    return {
        "type": "object",
        "properties": named,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }


def _sink_path() -> Schema:
    endings = "|".join(
        "".join(f"[{c.lower()}{c.upper()}]" if c.isalpha() else re.escape(c) for c in name)
        for name in sink_endings()
    )
    return {"type": "string", "pattern": rf"[^/]\.({endings})$"}


def _or_null(schema: Schema) -> Schema:
    """Let a key stand without a value, which counts as left out."""
    options = schema["anyOf"] if list(schema) == ["anyOf"] else [schema]
    return {"anyOf": [*options, {"type": "null"}]}


def _untitled(schema: Any) -> Any:
    """Drop pydantic's titles, which only repeat the names."""
    if isinstance(schema, dict):
        return {
            key: {name: _untitled(value) for name, value in child.items()}
            if key in ("properties", "$defs")
            else _untitled(child)
            for key, child in schema.items()
            if key != "title"
        }
    return [_untitled(child) for child in schema] if isinstance(schema, list) else schema
