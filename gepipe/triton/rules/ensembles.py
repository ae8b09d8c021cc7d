"""Ensembles: steps, and the tensors that lead from one to the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from gepipe.plugins import did_you_mean
from gepipe.triton.edit import Edit
from gepipe.triton.models import Model
from gepipe.triton.placing import removal
from gepipe.triton.problem import Finding, Repair, error, warning
from gepipe.triton.rules import wiring
from gepipe.triton.rules.surroundings import Surroundings
from gepipe.triton.signature import Tensor, tensors
from gepipe.triton.textnodes import Message, Scalar

_STEPS: Final = "ensemble_scheduling.step"


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


def check(model: Model, around: Surroundings) -> Iterator[Finding]:
    """Yield what is wrong with an ensemble."""
    root, text = model.root, model.document.text
    platform, backend = root.named("platform"), root.named("backend")
    if root.text("platform") != "ensemble":
        edit = (
            Edit(platform[-1].start, platform[-1].end, 'platform: "ensemble"')
            if platform
            else Edit(0, 0, 'platform: "ensemble"\n')
        )
        yield error(
            0,
            "platform",
            'expected platform: "ensemble" beside ensemble_scheduling',
            Repair('platform: "ensemble"', (edit,)),
        )
    if backend and root.text("backend"):
        yield error(
            backend[-1].start,
            "backend",
            "an ensemble has none; expected platform alone",
            Repair("no backend", (removal(text, backend[-1]),)),
        )
    for name in ("instance_group", "optimization", "model_warmup"):
        for each in root.named(name)[:1] if name == "instance_group" else ():
            edits = tuple(removal(text, one) for one in root.named(name))
            yield error(
                each.start,
                name,
                "an ensemble has no instances of its own; expected them in the models of its steps",
                Repair(f"no {name}", edits),
            )
    if root.named("dynamic_batching"):
        yield from _batching(model)
    scheduling = root.message("ensemble_scheduling")
    if scheduling is None or not scheduling.messages("step"):
        yield error(0, "ensemble_scheduling", "has no step; expected at least one")
        return
    steps: list[Step] = []
    for number, message in enumerate(scheduling.messages("step")):
        step = Step(f"{_STEPS}[{number}]", message, message.text("model_name"), None)
        yield from _step(model, around, step)
        steps.append(step)
    yield from wiring.check(model, steps)
    yield from _bound(model, steps)


def _batching(model: Model) -> Iterator[Finding]:
    if model.root.named("ensemble_scheduling"):
        return  # said of the protobuf
    at = model.root.named("dynamic_batching")[-1]
    yield error(
        at.start,
        "dynamic_batching",
        "an ensemble has no queue of its own; expected it in the models of its steps",
    )


def _step(model: Model, around: Surroundings, step: Step) -> Iterator[Finding]:
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
        yield from _map(step, side)


def _map(step: Step, side: str) -> Iterator[Finding]:
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
    pairs = [(entry, entry.scalar("key"), entry.scalar("value")) for entry in entries]
    if known and all(
        key and value and key.text not in known and value.text in known for _, key, value in pairs
    ):
        edits = [
            e
            for _, k, v in pairs
            if k and v
            for e in (Edit(k.start, k.end, v.source), Edit(v.start, v.end, k.source))
        ]
        yield error(
            entries[0].start,
            path,
            "has names of the model as values; expected them as keys, and "
            "the ensemble's tensors as values",
            Repair("keys and values swapped", tuple(edits)),
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


def _bound(model: Model, steps: list[Step]) -> Iterator[Finding]:
    """Look for a bound where requests come in, since an ensemble has no queue to reject them."""
    given = {tensor.name for tensor in tensors(model, "input")}
    for step in steps:
        if step.model is None or not {value.text for value in step.inputs.values()} & given:
            continue
        batching = step.model.root.message("dynamic_batching")
        policy = batching.message("default_queue_policy") if batching else None
        if step.model.backend == "ensemble" or step.model.root.named("sequence_batching"):
            continue
        if policy is None or policy.integer("max_queue_size") < 1:
            yield warning(
                step.message.start,
                step.path,
                f"{step.name} comes first and its queue has no bound, so "
                "requests pile up without end; expected dynamic_batching { default_queue_policy "
                "{ max_queue_size: … } } in its configuration",
            )
