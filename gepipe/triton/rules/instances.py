"""Instance groups: kinds, counts and devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gepipe.triton.edit import Edit
from gepipe.triton.models import Model
from gepipe.triton.placing import appended, removal
from gepipe.triton.problem import Finding, Repair, error, warning
from gepipe.triton.rules.surroundings import Surroundings
from gepipe.triton.textnodes import Message

#: Backends that work on cards of their own, for which Triton's kinds of devices mean nothing.
CARDS: Final = ("ge", "npu_ge")


def check(model: Model, around: Surroundings) -> Iterator[Finding]:
    """Yield what is wrong with the instance groups."""
    if model.backend == "ensemble":
        return
    root = model.root
    right = "KIND_MODEL" if model.backend in CARDS else "KIND_CPU"
    groups = root.messages("instance_group")
    if not groups:
        line = f"instance_group [ {{ count: 1 kind: {right} }} ]"
        repair = (
            Repair(line, (appended(model.document.text, root, line),))
            if (model.backend in (*CARDS, "python") and root.fields)
            else None
        )
        yield warning(
            0,
            "instance_group",
            "there is none, so the server chooses the kind, a GPU where "
            f"it sees one; expected {line}",
            repair,
        )
    for number, group in enumerate(groups):
        path = f"instance_group[{number}]"
        yield from _kind(model, around, group, path, right)
        yield from _rest(model, group, path)


def _kind(
    model: Model, around: Surroundings, group: Message, path: str, right: str
) -> Iterator[Finding]:
    kind, gpus, text = group.scalar("kind"), group.named("gpus"), model.document.text
    name = kind.source if kind else "KIND_AUTO"
    name = {"0": "KIND_AUTO", "1": "KIND_GPU", "2": "KIND_CPU", "3": "KIND_MODEL"}.get(name, name)
    ours = model.backend in (*CARDS, "python")
    if name == "KIND_AUTO":
        edit = (
            Edit(kind.start, kind.end, right)
            if kind
            else Edit(group.start + 1, group.start + 1, f" kind: {right}")
        )
        repair = Repair(f"kind: {right}", (edit,)) if ours and not gpus else None
        yield warning(
            group.start,
            f"{path}.kind",
            "is left to the server, which takes KIND_CPU here and "
            f"KIND_GPU where it sees a GPU; expected kind: {right}",
            repair,
        )
    elif name == "KIND_GPU" and kind and model.backend in CARDS:
        edits = (Edit(kind.start, kind.end, right), *(removal(text, field) for field in gpus))
        yield error(
            kind.start,
            f"{path}.kind",
            f"is KIND_GPU, but an NPU is none; expected {right}",
            Repair(right, edits),
        )
    elif name == "KIND_GPU" and kind and model.backend == "python" and not around.has_gpu():
        yield error(
            kind.start,
            f"{path}.kind",
            "is KIND_GPU, but this machine has none; expected KIND_CPU without gpus, or a server "
            "with a GPU",
        )
    elif gpus and name in ("KIND_CPU", "KIND_MODEL"):
        yield error(
            gpus[0].start,
            f"{path}.gpus",
            f"stands beside {name}; expected no gpus",
            Repair("no gpus", tuple(removal(text, field) for field in gpus)),
        )
    elif name == "KIND_CPU" and kind and model.backend == "ge":
        yield warning(
            kind.start,
            f"{path}.kind",
            "is KIND_CPU for a model of an NPU; expected KIND_MODEL",
            Repair("KIND_MODEL", (Edit(kind.start, kind.end, "KIND_MODEL"),)),
        )


def _rest(model: Model, group: Message, path: str) -> Iterator[Finding]:
    text = model.document.text
    count = group.scalar("count")
    if count and count.integer is not None and count.integer < 1:
        yield warning(
            count.start,
            f"{path}.count",
            f"is {count.source}, which the server takes as 1; expected 1 or more",
            Repair("1", (Edit(count.start, count.end, "1"),)),
        )
    if (profile := group.named("profile")) and model.backend != "tensorrt":
        yield error(
            profile[0].start,
            f"{path}.profile",
            "is for TensorRT alone; expected none",
            Repair("no profile", tuple(removal(text, field) for field in profile)),
        )
