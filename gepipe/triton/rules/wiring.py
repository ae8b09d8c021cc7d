"""The tensors of an ensemble: who writes them, who reads them, and whether both mean the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gepipe.plugins import did_you_mean
from gepipe.triton.models import Model
from gepipe.triton.problem import Finding, error, warning
from gepipe.triton.rules.step import Step
from gepipe.triton.signature import Tensor, tensors


@dataclass(slots=True)
class _End:
    """One side of a tensor: a step's input or output, or the ensemble's own.

    Attributes:
        offset: Where it is stated.
        path: The field.
        model: Whose it is, in words.
        tensor: What is stated of it; None where that is not known.
    """

    offset: int
    path: str
    model: str
    tensor: Tensor | None


@dataclass(slots=True)
class _Wire:
    writers: list[_End] = field(default_factory=list)
    readers: list[_End] = field(default_factory=list)


def check(model: Model, steps: list[Step]) -> Iterator[Finding]:
    """Yield what is wrong with the tensors between the steps."""
    yield from _sizes(model, steps)
    yield from _rows(model, steps)
    wires = _wires(model, steps)
    known = all(step.model is not None for step in steps)
    for name, wire in wires.items():
        for again in wire.writers[1:]:
            yield error(
                again.offset,
                again.path,
                f"{name!r} is written already by {wire.writers[0].model}; "
                "expected one writer for a tensor",
            )
        if not wire.writers:
            others = sorted(n for n, w in wires.items() if w.writers and n != name)
            yield error(
                wire.readers[0].offset,
                wire.readers[0].path,
                f"nothing writes {name!r}; expected an "
                f"input of the ensemble or a step's output; {did_you_mean(name, others)}",
            )
        elif not wire.readers and known:
            yield error(
                wire.writers[0].offset,
                wire.writers[0].path,
                f"nothing reads {name!r}; expected a "
                "step or an output of the ensemble; leave it out of the map",
            )
        yield from _same(name, wire)
    yield from _circle(steps)


def _wires(model: Model, steps: list[Step]) -> dict[str, _Wire]:
    wires: dict[str, _Wire] = {}
    for tensor in tensors(model, "input"):
        end = _End(tensor.message.start, tensor.path, f"the ensemble's {tensor.path}", tensor)
        wires.setdefault(tensor.name, _Wire()).writers.append(end)
    for step in steps:
        for side, kept in (("input", step.inputs), ("output", step.outputs)):
            for key, value in kept.items():
                end = _End(
                    value.start,
                    f"{step.path}.{side}_map",
                    f"{step.name}'s {key!r}",
                    step.tensor(side, key),
                )
                wire = wires.setdefault(value.text, _Wire())
                (wire.readers if side == "input" else wire.writers).append(end)
    for tensor in tensors(model, "output"):
        end = _End(tensor.message.start, tensor.path, f"the ensemble's {tensor.path}", tensor)
        wires.setdefault(tensor.name, _Wire()).readers.append(end)
    return wires


def _same(name: str, wire: _Wire) -> Iterator[Finding]:
    """Compare each reader with the writer, as the server does when it loads the ensemble."""
    first = next((end for end in wire.writers if end.tensor), None)
    if first is None or first.tensor is None:
        return
    for reader in wire.readers:
        theirs = reader.tensor
        if theirs is None or "INVALID" in (theirs.dtype, first.tensor.dtype):
            continue
        if theirs.dtype != first.tensor.dtype:
            yield error(
                reader.offset,
                reader.path,
                f"{name!r} is TYPE_{first.tensor.dtype} from {first.model}, "
                f"but {reader.model} is TYPE_{theirs.dtype}; expected one type",
            )
        elif not theirs.fits(first.tensor):
            yield error(
                reader.offset,
                reader.path,
                f"{name!r} is {list(first.tensor.shape)} from {first.model}, "
                f"but {reader.model} is {list(theirs.shape)}; expected one shape",
            )


def _rows(model: Model, steps: list[Step]) -> Iterator[Finding]:
    """Look for steps without batches that would get one; the server bridges one row, not more."""
    if model.max_batch < 2:
        return
    for step in steps:
        for key, value in step.inputs.items():
            tensor = step.tensor("input", key)
            if tensor is None or tensor.max_batch or tensor.dims[:1] == (-1,):
                continue
            yield warning(
                value.start,
                f"{step.path}.input_map",
                f"{step.name} takes no batches, so requests of more than one row fail here; "
                f"expected max_batch_size in {step.name}, or -1 in front of the dims of {key!r}",
            )


def _sizes(model: Model, steps: list[Step]) -> Iterator[Finding]:
    size = model.root.scalar("max_batch_size")
    for step in steps:
        if step.model and 0 < step.model.max_batch < model.max_batch:
            yield error(
                size.start if size else 0,
                "max_batch_size",
                f"is {model.max_batch}, but the step "
                f"{step.name} takes {step.model.max_batch} at most; expected no more than the "
                "smallest step",
            )
        policy = step.model.root.message("model_transaction_policy") if step.model else None
        if policy and policy.text("decoupled") in ("true", "True", "t", "1"):
            yield warning(
                step.message.start,
                step.path,
                f"{step.name} is decoupled, so the ensemble answers only "
                "over gRPC streams; expected clients that stream",
            )


def _circle(steps: list[Step]) -> Iterator[Finding]:
    """Look for steps that wait for each other."""
    written = {value.text for step in steps for value in step.outputs.values()}
    left = list(steps)
    while ready := [step for step in left if not _waiting(step, left, written)]:
        left = [step for step in left if step not in ready]
    if left:
        names = ", ".join(step.name for step in left)
        yield error(
            left[0].message.start,
            left[0].path,
            f"{names} wait for each other's tensors; expected steps without a circle",
        )


def _waiting(step: Step, left: list[Step], written: set[str]) -> bool:
    later = {value.text for each in left for value in each.outputs.values()} & written
    return any(value.text in later for value in step.inputs.values())
