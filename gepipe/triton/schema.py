"""Compares a configuration with Triton's own protobuf: fields, types, enumerations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gepipe.errors import ConfigError
from gepipe.plugins import did_you_mean
from gepipe.triton import dialect
from gepipe.triton.environment import EXTRA
from gepipe.triton.problem import Finding, error
from gepipe.triton.textnodes import Field, Message, Scalar

#: Fields of later protobufs that the server of this release refuses, and who has them.
_NEWER: Final = {
    ("ModelEnsembling", "max_inflight_requests"): "from 25.11 on",
    ("ModelConfig", "model_metrics"): "in later releases",
}
_BITS: Final = {"int32": 31, "int64": 63, "uint32": 32, "uint64": 64}
_BOOLEANS: Final = ("true", "false", "t", "f", "True", "False")
_FLOATS: Final = ("inf", "nan", "infinity")


def descriptor() -> Any:
    """Return the descriptor of Triton's model configuration.

    Raises:
        ConfigError: The client library, which has it, is not installed.
    """
    try:
        from tritonclient.grpc.model_config_pb2 import ModelConfig
    except ImportError as missing:
        raise ConfigError(f"Triton's protobuf is missing ({missing}); {EXTRA}") from missing
    return ModelConfig.DESCRIPTOR


def check(message: Message, kind: Any, path: str = "") -> Iterator[Finding]:
    """Yield everything in a message that its protobuf has not."""
    seen: dict[str, Field] = {}
    members: dict[str, Field] = {}
    counts: dict[str, int] = {}
    for field in message.fields:
        where = f"{path}{field.name}"
        described = kind.fields_by_name.get(field.name)
        if described is None:
            yield _unknown(message, field, kind, where)
            continue
        newer = _NEWER.get((kind.name, field.name))
        if newer:
            yield error(
                field.start,
                where,
                f"the server of release 24.10 has no such field, it came "
                f"{newer}; expected none; remove it",
            )
            continue
        repeated = _is_repeated(described)
        if not repeated:
            yield from _singular(field, where, seen)
        oneof = described.containing_oneof
        if oneof is not None:
            other = members.setdefault(oneof.name, field)
            if other.name != field.name:
                yield error(
                    field.start,
                    where,
                    f"stands beside {other.name}; expected only one of "
                    + ", ".join(each.name for each in oneof.fields),
                )
        first = counts.get(field.name, 0)
        counts[field.name] = first + len(field.values)
        if repeated and described.message_type and (repair := dialect.entries(field, described)):
            yield error(
                field.start,
                where,
                "its parts are no entries of key and value; expected "
                '{ key: "…" value: { string_value: "…" } }',
                repair,
            )
            continue
        for number, value in enumerate(field.values, first):
            each = f"{where}[{number}]" if repeated and described.message_type else where
            yield from _value(value, described, each)


def _is_repeated(described: Any) -> bool:
    known = getattr(described, "is_repeated", None)  # protobuf before 6.31 has `label` alone
    return bool(described.label == described.LABEL_REPEATED if known is None else known)


def _singular(field: Field, where: str, seen: dict[str, Field]) -> Iterator[Finding]:
    if field.name in seen:
        yield error(field.start, where, "is specified a second time; expected it once")
    seen[field.name] = field
    if field.is_list:
        yield error(field.start, where, "has a list; expected one value", dialect.unlist(field))


def _unknown(message: Message, field: Field, kind: Any, where: str) -> Finding:
    known = sorted(each.name for each in kind.fields)
    repair = dialect.unknown(message, field, kind)
    expected = f"expected {repair.words}" if repair else did_you_mean(field.name, known)
    return error(field.start, where, f"{kind.name} has no such field; {expected}", repair)


def _value(value: Scalar | Message, described: Any, where: str) -> Iterator[Finding]:
    if isinstance(value, Message):
        if described.message_type is None:
            yield error(
                value.start, where, f"has a message in braces; expected {_wanted(described)}"
            )
        else:
            yield from check(value, described.message_type, f"{where}.")
        return
    if described.message_type is not None:
        repair = dialect.wrap(value, described.message_type)
        yield error(
            value.start,
            where,
            f"has the bare value {value.source}; expected "
            + (repair.words if repair else "a message in braces"),
            repair,
        )
    elif not _fits(value, described):
        repair = dialect.scalar(value, described)
        expected = repair.words if repair else _wanted(described)
        yield error(value.start, where, f"has {value.source}; expected {expected}", repair)


def _fits(value: Scalar, described: Any) -> bool:
    kind = dialect.type_name(described)
    if kind == "string":
        return value.kind == "string"
    if kind == "enum":
        values = described.enum_type
        if value.kind == "name":
            return value.source in values.values_by_name
        return value.integer in values.values_by_number
    if kind == "bool":
        return value.source in _BOOLEANS or value.integer in (0, 1)
    if kind in _BITS:
        lowest = 0 if kind.startswith("u") else -(1 << _BITS[kind])
        return value.integer is not None and lowest <= value.integer < 1 << _BITS[kind]
    return value.kind == "number" or value.source.lower() in _FLOATS


def _wanted(described: Any) -> str:
    kind = dialect.type_name(described)
    if kind == "enum":
        return "one of " + ", ".join(described.enum_type.values_by_name)
    if kind.startswith("uint"):
        return "a whole number from 0 on"
    if kind in _BITS:
        return "a whole number"
    return {
        "string": "text in quotes",
        "bool": "true or false",
        "message": "a message in braces",
    }.get(kind, "a number")
