"""Parameters of the backend `ge`: which there are, and what they may say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from gepipe.plugins import did_you_mean
from gepipe.triton import parameters
from gepipe.triton.edit import Edit
from gepipe.triton.models import Model
from gepipe.triton.problem import Finding, Repair, error
from gepipe.triton.rules.surroundings import Surroundings
from gepipe.triton.textnodes import Scalar

_NUMBERS: Final = re.compile(r"\s*\d+\s*(,\s*\d+\s*)*")
_NUMERIC: Final = ("device_ids", "gears", "instances", "max_queue_size", "threads")


def check(model: Model, around: Surroundings) -> Iterator[Finding]:
    """Yield what is wrong with the parameters of a model of the backend `ge`."""
    del around
    if model.backend != "ge":
        return
    values: dict[str, Scalar] = {}
    keys = {entry.text("key") for entry in model.root.messages("parameters")}
    for number, entry in enumerate(model.root.messages("parameters")):
        key, value = entry.scalar("key"), entry.message("value")
        where = f"parameters[{number}]"
        if key is None or key.text in parameters.PYTHON:
            continue
        if key.text not in parameters.GE:
            yield _unknown(key, where, keys)
        elif value and (scalar := value.scalar("string_value")):
            values[key.text] = scalar
            if fault := _fault(key.text, scalar.text):
                yield error(
                    scalar.start, f"{where}.value", f"{key.text} is {scalar.source}; {fault}"
                )
    if "max_queue_size" not in values:  # else an instance may work on several devices
        yield from _instances(model, values.get("device_ids"))
    elif model.root.named("dynamic_batching"):
        yield error(
            values["max_queue_size"].start,
            "parameters",
            "max_queue_size has the backend form the batches; "
            "expected no dynamic_batching beside it",
        )


def _unknown(key: Scalar, where: str, keys: set[str]) -> Finding:
    name = parameters.RENAMED.get(key.text)
    repair = None
    if name and name not in keys:
        repair = Repair(name, (Edit(key.start, key.end, f'"{name}"'),))
    expected = f"expected {name}" if name else did_you_mean(key.text, list(parameters.GE))
    return error(key.start, f"{where}.key", f"ge has no parameter {key.text!r}; {expected}", repair)


def _fault(name: str, text: str) -> str:
    if name in _NUMERIC and not _NUMBERS.fullmatch(text):
        return 'expected numbers, such as "0" or "0,1"'
    if name == "engine_options" and text:
        try:
            is_object = isinstance(json.loads(text), dict)
        except ValueError:
            is_object = False
        if not is_object:
            return "expected a JSON object"
    return ""


def _instances(model: Model, ids: Scalar | None) -> Iterator[Finding]:
    """Compare the number of instances with that of devices: each instance works on one."""
    groups = model.root.messages("instance_group")
    devices = len(ids.text.split(",")) if ids else 1
    count = sum(max(group.integer("count"), 1) for group in groups)
    if ids is None or not groups or count >= devices:
        return
    repair = None
    if len(groups) == 1:
        at = groups[0].scalar("count")
        start, end = (at.start, at.end) if at else (groups[0].start + 1, groups[0].start + 1)
        text = str(devices) if at else f" count: {devices}"
        repair = Repair(f"count: {devices}", (Edit(start, end, text),))
    yield error(
        ids.start,
        "parameters",
        f"device_ids names {devices} devices for {count} instances; expected count: {devices}, an "
        "instance for each",
        repair,
    )
