"""Models of the backend `ge`: the file that it opens, and what that is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from gepipe.triton.edit import Edit
from gepipe.triton.models import Model
from gepipe.triton.problem import Finding, ModelFile, Move, Repair, error
from gepipe.triton.rules.surroundings import Surroundings

#: How older backends expect the file.
_BARE: Final = "model"
_SUFFIX: Final = {"om": ".om", "emulator": ".om", "onnx": ".onnx"}


def model_file(model: Model) -> Path | None:
    """Return the model file of the newest version that is served, where it is clear which it is."""
    served = model.served()
    found = _candidates(model, served[-1]) if served else []
    return model.files[found[0]] if len(found) == 1 else None


def _candidates(model: Model, version: int) -> list[str]:
    """Return the files of a version that may be the model."""
    default = model.root.text("default_model_filename")
    if default:
        name = f"{version}/{default}"
        return [name] if name in model.files else []
    inside = [name for name in model.files if PurePosixPath(name).parent.as_posix() == str(version)]
    return [name for name in inside if _may_be_model(PurePosixPath(name))]


def _may_be_model(path: PurePosixPath) -> bool:
    return path.suffix.lower() in (".om", ".onnx") or path.name == _BARE


def check(model: Model, around: Surroundings) -> Iterator[Finding]:
    """Yield what is wrong with the files of a model of the backend `ge`."""
    if model.backend != "ge":
        return
    for version in model.served():
        yield from _version(model, around, version)


def _version(model: Model, around: Surroundings, version: int) -> Iterator[Finding]:
    found = _candidates(model, version)
    if not found:
        yield from _missing(model, version)
        return
    if len(found) > 1:
        names = ", ".join(PurePosixPath(name).name for name in found)
        text = f"has {len(found)} models, {names}; expected default_model_filename to name one"
        yield Finding("error", 0, "", text, file=str(version))
        return
    if f"{version}/model.py" in model.files:
        text = "is never run: the backend's own model.py is; expected no model.py here"
        yield Finding("warning", 0, "", text, file=f"{version}/model.py")
    yield from _contents(model, around, found[0])


def _missing(model: Model, version: int) -> Iterator[Finding]:
    default = model.root.scalar("default_model_filename")
    inside = [PurePosixPath(n) for n in model.version_files() if n.startswith(f"{version}/")]
    models = [path.name for path in inside if _may_be_model(path)]
    if default is not None and default.text:
        repair = None
        if len(models) == 1:
            edit = Edit(default.start, default.end, f'"{models[0]}"')
            repair = Repair(f'"{models[0]}"', (edit,))
        yield error(
            default.start,
            "default_model_filename",
            f"there is no {version}/{default.text}; expected a file that is there"
            + (f", {models[0]}" if repair else ""),
            repair,
        )
        return
    others = ", ".join(sorted(path.name for path in inside))
    text = f"there is no model in it; expected one .om{f'; found {others}' if others else ''}"
    yield Finding("error", 0, "", text, file=str(version))


def _bare(opened: ModelFile, name: str) -> Iterator[Finding]:
    """Propose a name that says what a file is; the backend opens it under the old one too."""
    suffix = _SUFFIX.get(opened.kind)
    if suffix and PurePosixPath(name).name == _BARE:
        repair = Repair(f"renamed to model{suffix}", actions=(Move(name, name + suffix),))
        text = f"has no extension: {opened.words}; expected model{suffix}"
        yield Finding("warning", 0, "", text, repair, file=name)


def _contents(model: Model, around: Surroundings, name: str) -> Iterator[Finding]:
    opened = around.opened(model.files[name])
    if opened is None:
        return
    if not model.root.text("default_model_filename"):
        yield from _bare(opened, name)
    engine = next((e for e in model.root.messages("parameters") if e.text("key") == "engine"), None)
    value = engine.message("value") if engine else None
    wants = value.text("string_value") if value else "ge"
    path = PurePosixPath(name)
    if opened.kind == "onnx" and wants == "ge":
        source = path if path.suffix == ".onnx" else path.with_suffix(".onnx")
        text = (
            f"model file is not .om format: {opened.words}; expected .om; convert with "
            f"`gepipe model convert {model.folder / source}`, or run it on the CPU with "
            'parameters { key: "engine" value: { string_value: "onnxruntime" } }'
        )
        yield Finding("error", 0, "", text, file=name)
    elif opened.kind in ("om", "emulator") and wants == "onnxruntime":
        text = f"{opened.words}, but the parameter engine is onnxruntime; expected ONNX"
        yield Finding("error", 0, "", text, file=name)
    elif opened.kind == "other":
        yield Finding("error", 0, "", f"is no model: {opened.words}; expected .om", file=name)
