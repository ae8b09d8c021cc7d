"""Ensembles: what an ensemble itself may say, and the bound that its first step needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gepipe.triton.edit import Edit
from gepipe.triton.models import Model
from gepipe.triton.placing import removal
from gepipe.triton.problem import Finding, Repair, error, warning
from gepipe.triton.rules import step as step_rule
from gepipe.triton.rules import wiring
from gepipe.triton.rules.step import Step
from gepipe.triton.rules.surroundings import Surroundings
from gepipe.triton.signature import tensors

_STEPS: Final = "ensemble_scheduling.step"


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
    if groups := root.named("instance_group"):
        yield error(
            groups[0].start,
            "instance_group",
            "an ensemble has no instances of its own; expected them in the models of its steps",
            Repair("no instance_group", tuple(removal(text, each) for each in groups)),
        )
    scheduling = root.message("ensemble_scheduling")
    if scheduling is None or not scheduling.messages("step"):
        at = root.named("ensemble_scheduling")
        start = at[-1].start if at else 0
        yield error(start, "ensemble_scheduling", "has no step; expected at least one")
        return
    steps: list[Step] = []
    for number, message in enumerate(scheduling.messages("step")):
        step = Step(f"{_STEPS}[{number}]", message, message.text("model_name"), None)
        yield from step_rule.check(model, around, step)
        steps.append(step)
    yield from wiring.check(model, steps)
    yield from _bound(model, steps)


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
        keys = {entry.text("key") for entry in step.model.root.messages("parameters")}
        if "max_queue_size" in keys:  # the backend's own queue
            continue
        if policy is None or policy.integer("max_queue_size") < 1:
            yield warning(
                step.message.start,
                step.path,
                f"{step.name} comes first and its queue has no bound, so "
                "requests pile up without end; expected dynamic_batching { default_queue_policy "
                "{ max_queue_size: … } } in its configuration",
            )
