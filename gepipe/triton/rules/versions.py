"""Folders of versions: the server reads numbers, and may wait for ever for what is not in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gepipe.triton.models import Model
from gepipe.triton.problem import Finding, Make, Move, Repair, error
from gepipe.triton.rules.surroundings import Surroundings

_NUMBER: Final = re.compile(r"(?:v|ver|version)?[-_ ]?0*(\d+)", re.ASCII | re.IGNORECASE)
_SIGNED: Final = re.compile(r"[+-]\d+", re.ASCII)
#: Files that belong into a version.
_CONTENT: Final = ("model.py", "model.om", "model.onnx", "model.plan", "model.pt", "model")


def check(model: Model, around: Surroundings) -> Iterator[Finding]:
    """Yield what is wrong with the folders of versions, and with the choice among them."""
    del around
    if model.draft is None and not model.versions():
        return  # no model at all, which is said already
    for name in sorted(model.folders):
        if "/" not in name:
            yield from _folder(model, name)
    if not model.versions():
        yield from _none(model)
    elif not model.served():
        field = model.root.named("version_policy")[-1]
        yield error(
            field.start,
            "version_policy",
            "chooses none of the versions that are there; expected "
            f"a choice among {', '.join(map(str, model.versions()))}",
        )
    elif policy := model.root.message("version_policy"):
        for value in (policy.message("specific") or policy).scalars("versions"):
            if value.integer is not None and value.integer not in model.versions():
                yield error(
                    value.start,
                    "version_policy.specific.versions",
                    f"there is no version "
                    f"{value.integer}; expected versions among "
                    f"{', '.join(map(str, model.versions()))}",
                )


def _folder(model: Model, name: str) -> Iterator[Finding]:
    if name.isascii() and name.isdigit() and (name == "0" or not name.startswith("0")):
        return
    found = _NUMBER.fullmatch(name)
    if found:
        number = str(int(found[1]))
        repair = (
            None
            if number in model.folders
            else Repair(f"renamed to {number}", actions=(Move(name, number),))
        )
        text = f"the folder {name!r} is no version to the server; expected a plain number, {number}"
        level = "error" if repair or not model.versions() else "warning"
        yield Finding(level, 0, "", text, repair, file=name)  # type: ignore[arg-type]
    elif _SIGNED.fullmatch(name):
        text = f"the server takes the folder {name!r} for a version and never finishes loading it"
        yield Finding("error", 0, "", f"{text}; expected a plain number", file=name)


def _none(model: Model) -> Iterator[Finding]:
    if any(_NUMBER.fullmatch(name) for name in model.folders):
        return  # a name that is put right
    misplaced = [name for name in _CONTENT if name in model.files]
    actions: tuple[Make | Move, ...] = (Make("1"),)
    if misplaced:
        actions = (*actions, *(Move(name, f"1/{name}") for name in misplaced))
    elif model.backend != "ensemble":
        text = "there is no folder of a version; expected `1/` with the model in it"
        yield Finding("error", 0, "", text, file=".")
        return
    words = "made 1/" + (f" with {', '.join(misplaced)}" if misplaced else "")
    text = "there is no folder of a version, without which the server loads nothing; expected `1/`"
    if not misplaced:
        text += ", with a file in it, since version control drops empty folders"
    yield Finding("error", 0, "", text, Repair(words, actions=actions), file=".")
