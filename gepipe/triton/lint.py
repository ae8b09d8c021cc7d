"""Finds what the server would refuse, hang on, or take otherwise than meant; before it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from gepipe.triton import devices, schema
from gepipe.triton.edit import Edit
from gepipe.triton.models import CONFIG, Model, read
from gepipe.triton.problem import Describe, Finding, Make, Move, Problem, Repair, error
from gepipe.triton.rules import (
    batching,
    cards,
    ensembles,
    extras,
    instances,
    npu_ge,
    parameters,
    platform,
    python,
    tensors,
    versions,
)
from gepipe.triton.rules.surroundings import Surroundings

Found: TypeAlias = "tuple[Model, Finding, Problem]"
Rule: TypeAlias = Callable[[Model, Surroundings], Iterator[Finding]]

#: What looks at each model by itself, in this order.
_RULES: Final[Sequence[Rule]] = (
    platform.check,
    versions.check,
    instances.check,
    batching.check,
    tensors.check,
    extras.check,
    python.check,
    cards.check,
    npu_ge.check,
    parameters.check,
)
#: Repairs that bring up others are few; more rounds than this would be a loop.
_MOST_ROUNDS: Final = 12


@dataclass(frozen=True, slots=True)
class Report:
    """What was found.

    Attributes:
        models: The models, with repairs made in memory.
        repairable: Problems that have a repair, in the order of files and lines.
        remaining: Problems that only a person can solve.
        actions: Changes of files in the order in which they must be made.
    """

    models: dict[str, Model]
    repairable: tuple[Problem, ...]
    remaining: tuple[Problem, ...]
    actions: tuple[tuple[Model, Move | Make], ...]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All of them, in the order of files and lines."""
        return tuple(sorted((*self.repairable, *self.remaining), key=_place))


def lint(root: Path, *, backends: Path | None = None, describe: Describe | None = None) -> Report:
    """Look at a model repository.

    Args:
        root: The repository.
        backends: The server's folder of backends; what is not in it cannot be served.
        describe: Opens model files, for what they say of their inputs and outputs.

    Raises:
        ConfigError: It cannot be read, or is no repository.
    """
    models = read(root)
    surroundings = Surroundings(models, backends, describe)
    repairable: dict[Problem, None] = {}
    actions: list[tuple[Model, Move | Make]] = []
    for _ in range(_MOST_ROUNDS):
        found = _look(models, surroundings)
        made = _repair(found, actions)
        repairable |= dict.fromkeys(problem for _, _, problem in made)
        if not made:
            break
    remaining = {problem for _, finding, problem in found if not finding.repair}
    if stuck := {model.name for model, _, _ in made}:
        # A text broken so that each repair brings up the next: it is left as it is.
        models |= {name: fresh for name, fresh in read(root).items() if name in stuck}
        of_stuck = [each for each in _look(models, surroundings) if each[0].name in stuck]
        folders = {models[name].folder for name in stuck}
        kept = {each for each in remaining if folders.isdisjoint(each.path.parents)}
        remaining = kept | {replace(problem, repair="") for _, _, problem in of_stuck}
        repairable = {each: None for each in repairable if folders.isdisjoint(each.path.parents)}
        actions = [each for each in actions if each[0].name not in stuck]
    return Report(
        models,
        tuple(sorted(repairable, key=_place)),
        tuple(sorted(remaining, key=_place)),
        tuple(actions),
    )


def _look(models: dict[str, Model], surroundings: Surroundings) -> list[Found]:
    """Return what there is to find, up to the first stage in which something is repaired.

    What a later stage says of a configuration that is to be repaired first would mean nothing.
    """
    kind = schema.descriptor()
    found: list[Found] = []
    stages: tuple[Callable[[Model], Iterator[Finding]], ...] = (
        lambda model: _written(model, kind),
        lambda model: _alone(model, surroundings),
        lambda model: _composed(model, surroundings),
    )
    for stage in stages:
        for model in models.values():
            found += [(model, each, _problem(model, each)) for each in stage(model)]
        if any(finding.repair for _, finding, _ in found):
            break
    return found


def _written(model: Model, kind: Any) -> Iterator[Finding]:
    """Yield what is wrong with a configuration as text and as protobuf."""
    if model.unreadable:
        yield error(0, "", f"cannot be read: {model.unreadable}; expected a text file")
    for fault in model.document.faults:
        repair = (
            Repair(f"put `{fault.edit.text}`" if fault.edit.text else "taken away", (fault.edit,))
            if fault.edit
            else None
        )
        yield error(fault.offset, "", fault.text, repair)
    named = devices.as_parameter(
        model.document.text, model.root, is_card=model.backend in instances.CARDS
    )
    for finding in schema.check(model.root, kind):
        name = finding.field.rpartition(".")[2]
        if named and finding.field.startswith("instance_group") and name in devices.FIELDS:
            yield replace(
                finding,
                text=finding.text.partition(";")[0] + f"; expected {named.words}",
                repair=named,
            )
            named = None
        else:
            yield finding


def _alone(model: Model, around: Surroundings) -> Iterator[Finding]:
    """Yield what is wrong with a model by itself."""
    if not model.unreadable and not model.document.faults:
        for check in _RULES:
            yield from check(model, around)


def _composed(model: Model, around: Surroundings) -> Iterator[Finding]:
    """Yield what is wrong with an ensemble and its steps."""
    if model.backend == "ensemble" and not model.document.faults:
        yield from ensembles.check(model, around)


def _repair(found: list[Found], actions: list[tuple[Model, Move | Make]]) -> list[Found]:
    """Make the repairs that do not touch the same place, in memory; return what they were for."""
    made: list[Found] = []
    edits: dict[str, list[Edit]] = {}
    for model, finding, problem in found:
        if finding.repair is None:
            continue
        before = edits.setdefault(model.name, [])
        if any(edit.meets(other) for edit in finding.repair.edits for other in before):
            continue  # seen again in the next round if it is still there
        before += finding.repair.edits
        for action in finding.repair.actions:
            model.act(action)
            actions.append((model, action))
        made.append((model, finding, problem))
    for model in {id(model): model for model, _, _ in made}.values():
        if model.draft and edits[model.name]:
            model.draft.apply(edits[model.name])
            model.parse()
    return made


def _problem(model: Model, finding: Finding) -> Problem:
    repair = finding.repair.words if finding.repair else ""
    if finding.file:
        path, line, column = model.folder / finding.file, finding.line, 0
    else:
        path = model.folder / CONFIG
        line, column = model.draft.place(finding.offset) if model.draft else (0, 0)
    return Problem(finding.level, path, line, column, finding.field, finding.text, repair)


def _place(problem: Problem) -> tuple[str, int, int, str]:
    return str(problem.path), problem.line, problem.column, problem.text
