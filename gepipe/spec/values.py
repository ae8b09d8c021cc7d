"""Value types of the stage keys that need more than pydantic's own wording."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer, PlainValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from gepipe import plugins
from gepipe.spec.explain import Issue, nested, problem
from gepipe.spec.parts import (
    build,
    name_of,
    not_finite,
    params_of,
    sink_of,
    source_of,
    split_entry,
    splitters,
)
from gepipe.spec.paths import resolve
from gepipe.spec.units import shown


@dataclass(frozen=True, slots=True)
class Backend:
    """Which engine runs the model.

    Attributes:
        name: A registered engine, or `auto`.
        options: Options of that engine.
    """

    name: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def base_of(info: ValidationInfo) -> Path | None:
    """Return the folder that relative input paths may start from, as the loader passes it."""
    return (info.context or {}).get("base")


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _count(value: Any) -> int:
    if not _whole(value, 1):
        raise ValueError(f"expected a whole number of at least 1, got {shown(value)}")
    return int(value)


def _count_or_auto(value: Any) -> int | Literal["auto"]:
    if value == "auto":
        return "auto"
    if not _whole(value, 1):
        raise ValueError(f"expected a whole number of at least 1, or auto, got {shown(value)}")
    return int(value)


def _numbers(value: Any, least: int, wanted: str) -> tuple[int, ...]:
    numbers = list(value) if isinstance(value, list | tuple) else [value]
    for number in numbers:
        if not _whole(number, least):
            got = f"{shown(number)} among them" if isinstance(value, list | tuple) else shown(value)
            raise ValueError(f"expected {wanted}, got {got}")
    if twice := sorted({number for number in numbers if numbers.count(number) > 1}):
        raise ValueError(f"{', '.join(map(str, twice))} is listed twice")
    return tuple(numbers)


def _devices(value: Any) -> tuple[int, ...] | Literal["auto"]:
    if value == "auto":
        return "auto"
    wanted = "device numbers such as [0, 1], or auto"
    if value in ([], ()):
        raise ValueError(f"expected {wanted}, got an empty list")
    return _numbers(value, 0, wanted)


def _gears(value: Any) -> tuple[int, ...]:
    return tuple(sorted(_numbers(value, 1, "batch sizes such as [1, 4, 8]")))


def _path(value: Any, info: ValidationInfo) -> Path:
    if not isinstance(value, str | PurePath) or not str(value):
        raise ValueError(f"expected a path, got {shown(value) or 'empty text'}")
    return resolve(value, base_of(info))


def _backend(value: Any) -> Backend:
    if isinstance(value, Backend):
        return value
    name, options = split_entry(value, "engine")
    known = ["auto", *plugins.names("engines")]
    if name not in known:
        raise problem(f"unknown engine {name!r}; {plugins.did_you_mean(name, known)}", name)
    if options is not None and not isinstance(options, Mapping):
        text = f"expected a mapping of options, got {shown(options)}"
        raise problem(text, name)
    if (found := not_finite(options)) is not None:
        raise problem("expected a finite number, got .nan or .inf", name, *found)
    return Backend(name, dict(options or {}))


def _plain_gears(gears: tuple[int, ...]) -> list[int]:
    return list(gears)


def _plain_path(path: Path) -> str:
    return str(path)


def _plain_backend(backend: Backend) -> str | dict[str, Any]:
    return {backend.name: dict(backend.options)} if backend.options else backend.name


def _plain_part(kind: plugins.Kind, part: Any) -> Any:
    params = params_of(part)
    return {name_of(kind, part): params or None}


def _ops(role: str) -> PlainValidator:
    def validate(value: Any, info: ValidationInfo) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise problem(f"expected a list of operators, each after a -, got {shown(value)}")
        ops = tuple(each(value, lambda entry: _op(entry, role, base_of(info))))
        _check_first(ops, value)
        return ops

    return PlainValidator(validate)


def _check_first(ops: Sequence[Any], value: Sequence[Any]) -> None:
    """Refuse an operator that reads what another one made, where there is none before it."""
    if ops and (before := getattr(ops[0], "follows", "")):
        text = (
            f"{ops[0].title.partition(' ')[0]} reads what an operator before it made, and here it "
            f"comes first; put one before it, such as {before}"
        )
        raise problem(text, 0, *_name(value[0]))


def _mid_ops(value: Any, info: ValidationInfo) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise problem(f"expected a list of operators, each after a -, got {shown(value)}")
    ops = tuple(each(value, lambda entry: _op(entry, "", base_of(info))))
    stages = [getattr(op, "stage", "both") for op in ops]
    found = [index for index, stage in enumerate(stages) if stage == "mid"]
    if not found:
        known = splitters()
        raise problem(
            "a mid stage needs an operator that says what the next model sees of an item; expected "
            f"one of {', '.join(known)} among them"
        )
    if len(found) > 1:
        text = "a mid stage splits an item once; this one does it twice"
        raise problem(text, found[1], *_name(value[found[1]]))
    (at,) = found
    wrong = [
        Issue(
            (index, *_name(value[index])),
            f"an operator for {stage} stages stands "
            + ("before" if index < at else "behind")
            + f" {ops[at].title}; what reads a model comes before it, what makes an input behind",
        )
        for index, stage in enumerate(stages)
        if stage not in ("mid", "both", "post" if index < at else "pre")
    ]
    if wrong:
        raise nested(wrong)
    _check_first(ops, value)
    return ops


def _name(entry: Any) -> tuple[str, ...]:
    """Return the name that an operator has in the file, as far as it comes from one."""
    if isinstance(entry, Mapping) and len(entry) == 1:
        return (str(next(iter(entry))),)
    return (entry,) if isinstance(entry, str) else ()


def _op(entry: Any, role: str, base: Path | None) -> Any:
    if callable(entry) and hasattr(entry, "__dataclass_fields__"):
        return entry
    name, value = split_entry(entry, "operator")
    return build("ops", name, value, base, role=role)


def each(values: Iterable[Any], build: Callable[[Any], Any]) -> list[Any]:
    """Build every value of a list, and raise one error with the issues of all.

    Args:
        values: What to build from.
        build: Called with each; may raise what `nested` returns.
    """
    built, issues = [], []
    for index, value in enumerate(values):
        try:
            built.append(build(value))
        except PydanticCustomError as error:
            found: list[Issue] = (error.context or {})["issues"]
            issues += [replace(issue, loc=(index, *issue.loc)) for issue in found]
    if issues:
        raise nested(issues)
    return built


def _source(value: Any, info: ValidationInfo) -> Any:
    return source_of(value, base_of(info))


_dump_ops = PlainSerializer(lambda ops: [_plain_part("ops", op) for op in ops])

Count = Annotated[int, PlainValidator(_count)]
CountOrAuto = Annotated[int | Literal["auto"], PlainValidator(_count_or_auto)]
Devices = Annotated[
    tuple[int, ...] | Literal["auto"],
    PlainValidator(_devices),
    PlainSerializer(lambda devices: devices if devices == "auto" else list(devices)),
]
Gears = Annotated[tuple[int, ...], PlainValidator(_gears), PlainSerializer(_plain_gears)]
ModelPath = Annotated[Path, PlainValidator(_path), PlainSerializer(_plain_path)]
BackendChoice = Annotated[Backend, PlainValidator(_backend), PlainSerializer(_plain_backend)]
PreOps = Annotated[tuple[Any, ...], _ops("pre"), _dump_ops]
MidOps = Annotated[tuple[Any, ...], PlainValidator(_mid_ops), _dump_ops]
PostOps = Annotated[tuple[Any, ...], _ops("post"), _dump_ops]
Source = Annotated[
    Any, PlainValidator(_source), PlainSerializer(lambda part: _plain_part("sources", part))
]
Sink = Annotated[
    Any,
    PlainValidator(sink_of),
    PlainSerializer(lambda part: _plain_part("sinks", part)),
]
