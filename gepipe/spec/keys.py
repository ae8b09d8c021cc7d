"""What each key of a pipeline file may hold, as JSON schema and in words.

Descriptions and defaults are the models' own; here is only what pydantic cannot derive, since the
file accepts more than the models hold: units, bare values, names of plugins.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from gepipe.spec.stages import NAME_PATTERN
from gepipe.spec.units import DURATION_PATTERN, PERCENT_PATTERN


class Accepted(NamedTuple):
    """What a key accepts.

    Attributes:
        schema: JSON schema; `$ref` names what is made of the plugins.
        words: The same for people.
    """

    schema: dict[str, Any]
    words: str


def _whole(least: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least}


def _list_or_one(least: int) -> list[dict[str, Any]]:
    return [{"type": "array", "items": _whole(least), "uniqueItems": True}, _whole(least)]


def _choice(*values: str) -> Accepted:
    return Accepted({"enum": list(values)}, ", ".join(f"`{value}`" for value in values))


_COUNT_OR_AUTO: Final = Accepted(
    {"anyOf": [_whole(1), {"const": "auto"}]}, "whole number, or `auto`"
)
_TIMEOUT: Final = Accepted(
    {
        "anyOf": [
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "string", "pattern": DURATION_PATTERN},
        ]
    },
    "duration",
)

KEYS: Final[dict[str, Accepted]] = {
    "name": Accepted({"type": "string", "minLength": 1}, "text"),
    "source": Accepted({"$ref": "#/$defs/source"}, "path, list of paths, or source"),
    "stages": Accepted({"$ref": "#/$defs/stages"}, "list of stages"),
    "sink": Accepted({"$ref": "#/$defs/sink"}, "path or sink"),
    "depth": Accepted(_whole(1), "whole number"),
    "max_wait": Accepted(
        {
            "anyOf": [
                {"type": "number", "minimum": 0},
                {"type": "string", "pattern": DURATION_PATTERN},
            ]
        },
        "duration",
    ),
    "profile": Accepted(
        {"$ref": "#/$defs/profile"}, "`latency`, `throughput`, or a mapping of its keys"
    ),
    "on_error": _choice("skip", "fail"),
    "max_failures": Accepted(
        {"anyOf": [_whole(0), {"type": "string", "pattern": PERCENT_PATTERN}]},
        "whole number or percentage",
    ),
}  # fmt: skip

PROFILE_KEYS: Final[dict[str, Accepted]] = {
    "preset": _choice("latency", "throughput"),
    "batch_size": Accepted(_whole(1), "whole number"),
    "max_wait": KEYS["max_wait"],
    "queue": Accepted(_whole(1), "whole number"),
    "instances": _COUNT_OR_AUTO,
    "precision": _choice("auto", "fp32", "fp16"),
    "priority_levels": Accepted({"enum": [1, 2]}, "`1` or `2`"),
}

STAGE_KEYS: Final[dict[str, Accepted]] = {
    "name": Accepted({"type": "string", "pattern": NAME_PATTERN}, "letters, digits, `_`, `-`"),
    "role": _choice("pre", "infer", "mid", "post"),
    "threads": _COUNT_OR_AUTO,
    "batch_size": _COUNT_OR_AUTO,
    "ops": Accepted({"$ref": "#/$defs/ops"}, "list of operators"),
    "timeout": _TIMEOUT,
    "model": Accepted({"type": "string", "minLength": 1}, "path"),
    "backend": Accepted({"$ref": "#/$defs/backend"}, "engine"),
    "devices": Accepted(
        {
            "anyOf": [
                {"type": "array", "items": _whole(0), "uniqueItems": True, "minItems": 1},
                _whole(0),
                {"const": "auto"},
            ]
        },
        "list of numbers, one number, or `auto`",
    ),
    "instances": _COUNT_OR_AUTO,
    "gears": Accepted({"anyOf": _list_or_one(1)}, "list of whole numbers, or one"),
    "precision": _choice("auto", "fp32", "fp16"),
    "nan": _choice("fail", "keep", "warn"),
    "stream_count": _COUNT_OR_AUTO,
}  # fmt: skip
