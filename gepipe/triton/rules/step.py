"""The steps of an ensemble: their models, and the maps between both sides' names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from gepipe.plugins import did_you_mean
from gepipe.triton.edit import Edit
from gepipe.triton.models import Model
from gepipe.triton.problem import Finding, Repair, error, warning
from gepipe.triton.rules.surroundings import Surroundings
from gepipe.triton.signature import Tensor, tensors
from gepipe.triton.textnodes import Message, Scalar

_Pairs: TypeAlias = "Sequence[tuple[Message, Scalar | None, Scalar | None]]"


@dataclass(slots=True)
class Step:
    """A step.

    Attributes:
        path: The field.
        message: Where it is stated.
        name: Its model's name.
        model: Its model; None where there is none that can be looked at.
        inputs: For each input of its model, the ensemble's tensor.
        outputs: For each output, alike.
    """

    path: str
    message: Message
    name: str
    model: Model | None
    inputs: dict[str, Scalar] = field(default_factory=dict)
    outputs: dict[str, Scalar] = field(default_factory=dict)

    def tensor(self, side: str, name: str) -> Tensor | None:
        """Return what its model states of an input or output."""
        listed = tensors(self.model, side) if self.model else []
        return next((tensor for tensor in listed if tensor.name == name), None)


def check(model: Model, around: Surroundings, step: Step) -> Iterator[Finding]:
    """Yield what is wrong with a step, and fill it in."""
    found = around.models.get(step.name)
    name = step.message.scalar("model_name")
    at = name.start if name else step.message.start
    if not step.name:
        yield error(at, f"{step.path}.model_name", "is missing; expected a model of the repository")
    elif step.message.named("model_namespace"):
        found = None
    elif found is None:
        yield error(
            at,
            f"{step.path}.model_name",
            f"there is no model {step.name!r} in the repository; "
            f"{did_you_mean(step.name, sorted(set(around.models) - {model.name}))}",
        )
    elif found is model:
        yield error(at, f"{step.path}.model_name", "is the ensemble itself; expected another model")
        found = None
    if found and not found.document.faults and not found.unreadable:
        step.model = found
    version = step.message.scalar("model_version")
    number = version.integer if version else -1
    if version and step.model and number not in (-1, *step.model.served()):
        yield error(
            version.start,
            f"{step.path}.model_version",
            f"{step.name} serves no version "
            f"{version.source}; expected -1, the newest, or one of "
            f"{', '.join(map(str, step.model.served()))}",
        )
    for side in ("input", "output"):
        yield from _map(model, step, side)


def _map(model: Model, step: Step, side: str) -> Iterator[Finding]:
    map_name = f"{side}_map"
    entries = step.message.messages(map_name)
    path = f"{step.path}.{map_name}"
    if not entries:
        yield error(
            step.message.start,
            path,
            "is missing; expected a key, the name in the model, and a value, the ensemble's tensor",
        )
        return
    listed = tensors(step.model, side) if step.model else []
    known = {tensor.name for tensor in listed}
    kept = step.inputs if side == "input" else step.outputs
    pairs = [(each, each.scalar("key"), each.scalar("value")) for each in entries]
    if known and (repair := _swapped(model, step, pairs, known)):
        yield error(
            entries[0].start,
            path,
            "has the model's names as values; expected them as keys, and the ensemble's as values",
            repair,
        )
        return
    for number, (entry, key, value) in enumerate(pairs):
        if key is None or value is None or not key.text or not value.text:
            yield error(entry.start, f"{path}[{number}]", "has no key or no value; expected both")
            continue
        if key.text in kept:
            yield warning(
                entry.start,
                f"{path}[{number}].key",
                f"is {key.text!r} a second time, and the last "
                "one counts without a word; expected each key once",
            )
        if known and key.text not in known:
            yield error(
                key.start,
                f"{path}[{number}].key",
                f"{step.name} has no {side} {key.text!r}; {did_you_mean(key.text, sorted(known))}",
            )
            continue
        kept[key.text] = value
    missing = (
        [t.name for t in listed if t.name not in kept and not t.is_optional]
        if side == "input"
        else []
    )
    if missing and all(key and key.text in known for _, key, _ in pairs):
        yield error(
            step.message.start,
            path,
            f"{step.name} needs {', '.join(missing)} too; expected every input of the model",
        )


def _swapped(model: Model, step: Step, pairs: _Pairs, known: set[str]) -> Repair | None:
    """Return the repair of a map whose keys are the ensemble's tensors, if they are."""
    others = {tensor.name for side in ("input", "output") for tensor in tensors(model, side)}
    scheduling = model.root.message("ensemble_scheduling")
    for message in scheduling.messages("step") if scheduling else ():
        if message is not step.message:
            maps = [*message.messages("input_map"), *message.messages("output_map")]
            others |= {entry.text(name) for entry in maps for name in ("key", "value")}
    edits: list[Edit] = []
    for _, key, value in pairs:
        if key is None or value is None or value.text not in known or key.text in known:
            return None
        if key.text not in others:
            return None
        edits += [
            Edit(key.start, key.end, value.source),
            Edit(value.start, value.end, key.source),
        ]
    return Repair("keys and values swapped", tuple(edits))
