"""Models of the backend `ge`: the file that it opens, and what that is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from gepipe.triton.edit import Edit
from gepipe.triton.models import Model
from gepipe.triton.placing import appended
from gepipe.triton.problem import Finding, Move, Repair, error
from gepipe.triton.rules.surroundings import Surroundings

_SUFFIX = {"om": ".om", "emulator": ".om", "onnx": ".onnx"}


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
    return [name for name in inside if PurePosixPath(name).suffix in (".om", ".onnx")]


def check(model: Model, around: Surroundings) -> Iterator[Finding]:
    """Yield what is wrong with the files of a model of the backend `ge`."""
    if model.backend != "ge":
        return
    for version in model.served():
        yield from _version(model, around, version)


def _version(model: Model, around: Surroundings, version: int) -> Iterator[Finding]:
    default = model.root.scalar("default_model_filename")
    found = _candidates(model, version)
    if not found:
        yield from _missing(model, around, version)
        return
    if len(found) > 1:
        names = ", ".join(PurePosixPath(name).name for name in found)
        text = f"has {len(found)} models, {names}; expected default_model_filename to name one"
        yield Finding("error", 0, "", text, file=str(version))
        return
    file = PurePosixPath(found[0]).name
    if default is None and file not in ("model.om", "model.onnx"):
        line = f'default_model_filename: "{file}"'
        yield error(
            0,
            "default_model_filename",
            f"is missing, while the model is {version}/{file}; expected {line}",
            Repair(line, (appended(model.document.text, model.root, line),)),
        )
    if f"{version}/model.py" in model.files:
        text = "is never run: the backend's own model.py is; expected no model.py here"
        yield Finding("warning", 0, "", text, file=f"{version}/model.py")
    yield from _contents(model, around, found[0])


def _missing(model: Model, around: Surroundings, version: int) -> Iterator[Finding]:
    default = model.root.scalar("default_model_filename")
    bare = f"{version}/model"
    if bare in model.files:
        opened = around.opened(model.files[bare])
        suffix = _SUFFIX.get(opened.kind) if opened else None
        name = default.text if default else f"model{suffix}"
        what = f": {opened.words}" if opened else ""
        repair = (
            Repair(f"renamed to {name}", actions=(Move(bare, f"{version}/{name}"),))
            if (suffix)
            else None
        )
        text = f"has no extension{what}; expected {name if suffix else 'model.om'}"
        yield Finding("error", 0, "", text, repair, file=bare)
        return
    inside = sorted(
        PurePosixPath(n).name for n in model.version_files() if n.startswith(f"{version}/")
    )
    models = [name for name in inside if name.endswith((".om", ".onnx"))]
    if default is not None:
        repair = (
            Repair(f'"{models[0]}"', (Edit(default.start, default.end, f'"{models[0]}"'),))
            if (len(models) == 1)
            else None
        )
        yield error(
            default.start,
            "default_model_filename",
            f"there is no {version}/{default.text}; "
            f"expected a file that is there{', ' + models[0] if repair else ''}",
            repair,
        )
        return
    found = f"; found {', '.join(inside)}" if inside else ""
    text = f"there is no model in it; expected model.om{found}"
    yield Finding("error", 0, "", text, file=str(version))


def _contents(model: Model, around: Surroundings, name: str) -> Iterator[Finding]:
    opened = around.opened(model.files[name])
    if opened is None:
        return
    engine = next((e for e in model.root.messages("parameters") if e.text("key") == "engine"), None)
    value = engine.message("value") if engine else None
    wants = value.text("string_value") if value else "ge"
    path = PurePosixPath(name)
    if opened.kind == "onnx" and wants == "ge":
        source = path if path.suffix == ".onnx" else path.with_suffix(".onnx")
        text = (
            f"model file is not .om format: {opened.words}; expected .om; convert with "
            f"`gepipe model convert {model.folder.name}/{source}`, or run it on the CPU with "
            'parameters { key: "engine" value: { string_value: "onnxruntime" } }'
        )
        yield Finding("error", 0, "", text, file=name)
    elif opened.kind in ("om", "emulator") and wants == "onnxruntime":
        text = f"{opened.words}, but the parameter engine is onnxruntime; expected ONNX"
        yield Finding("error", 0, "", text, file=name)
    elif opened.kind == "other":
        yield Finding("error", 0, "", f"is no model: {opened.words}; expected .om", file=name)
