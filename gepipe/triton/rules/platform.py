"""Which backend serves a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from gepipe.plugins import did_you_mean
from gepipe.triton import dialect
from gepipe.triton.edit import Edit
from gepipe.triton.models import CONFIG, Model
from gepipe.triton.placing import removal
from gepipe.triton.problem import Finding, Repair, error, warning
from gepipe.triton.rules import backends
from gepipe.triton.rules.backends import Place
from gepipe.triton.rules.surroundings import Surroundings

#: What `platform` may say, and the backend that it stands for.
_PLATFORMS: Final = {
    "ensemble": "", "tensorrt_plan": "tensorrt", "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow", "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
}  # fmt: skip
#: Backends that a server set up by gepipe has, or that ship with CANN.
_OURS: Final = ("ge", "npu_ge", "python")
#: Backends of NVIDIA's own images, and well-known others.
_OTHERS: Final = (
    "dali", "fil", "identity", "onnxruntime", "openvino", "pytorch", "repeat", "square",
    "tensorflow", "tensorrt", "tensorrtllm", "vllm",
)  # fmt: skip
#: Files in a version from which the server takes the backend by itself.
_TELLING: Final = {
    "model.plan": "tensorrt", "model.onnx": "onnxruntime", "model.pt": "pytorch",
    "model.xml": "openvino", "model.graphdef": "tensorflow", "model.savedmodel": "tensorflow",
}  # fmt: skip


def check(model: Model, around: Surroundings) -> Iterator[Finding]:
    """Yield what is wrong with `name`, `platform`, `backend` and `runtime`."""
    yield from _name(model)
    if model.backend == "ensemble":
        return
    root, text = model.root, model.document.text
    platforms = root.named("platform")
    if platforms and root.text("platform") not in _PLATFORMS:
        platform = root.text("platform")
        repair = dialect.platform(root, removal(text, platforms[-1]))
        if not root.named("backend"):
            yield error(
                platforms[-1].start,
                "platform",
                f"there is no platform {platform!r}; expected "
                + (repair.words if repair else 'a backend, such as backend: "ge"'),
                repair,
            )
        elif repair:
            yield warning(
                platforms[-1].start,
                "platform",
                f"{platform!r} means nothing to the server; expected {repair.words}",
                repair,
            )
    yield from _backend(model, around)


def _name(model: Model) -> Iterator[Finding]:
    field = model.root.named("name")
    name = model.root.text("name")
    if field and name and name != model.name:
        yield error(
            field[-1].start,
            "name",
            f"is {name!r}, but its folder is {model.name!r}; expected no name: the folder's counts",
            Repair("no name", (removal(model.document.text, field[-1]),)),
        )


def _backend(model: Model, around: Surroundings) -> Iterator[Finding]:
    root, backend = model.root, model.backend
    field = next(iter(root.named("backend")), None)
    if not root.text("backend"):
        if root.text("platform") in _PLATFORMS:
            backend = _PLATFORMS[root.text("platform")]
        elif root.named("platform"):
            return  # said already
        else:
            names = {PurePosixPath(name).name for name in model.version_files()}
            names |= {name.split("/")[1] for name in model.folders if name.count("/") == 1}
            known = next((_TELLING[name] for name in sorted(names) if name in _TELLING), backend)
            yield from _no_backend(model, known)
            return
    start = field.start if field else 0
    where = "backend" if field else "platform"
    if repair := _misnamed(model, backend):
        yield error(
            start, where, f"there is no backend {backend!r}; expected {repair.words}", repair
        )
        return
    yield from _runtime(model, around)
    if model.root.named("runtime") or _brings(model, backend):
        return
    if around.backends is not None:
        yield from backends.check(backend, around.backends, model, Place(start, where))
    elif backend in _OTHERS:
        yield warning(
            start,
            where,
            f"the server that `gepipe triton install` sets up has no backend "
            f"{backend!r}; expected one of {', '.join(_OURS)}; another server may have it: "
            "name its folder with --backends",
        )
    elif backend not in _OURS:
        yield error(
            start,
            where,
            f"no backend is known as {backend!r}; "
            f"{did_you_mean(backend, [*_OURS, *_OTHERS])}; name the server's folder of "
            "backends with --backends if it is your own",
        )


def _no_backend(model: Model, known: str) -> Iterator[Finding]:
    missing = "there is no config.pbtxt" if model.draft is None else "there is no backend"
    if known:
        text = f"{missing}; the server guesses {known!r} from the file there; expected it in words"
        yield Finding("warning", 0, "", text, file="" if model.draft else CONFIG)
        return
    hint = 'write `backend: "ge"` for a model of an NPU, `platform: "ensemble"` for an ensemble'
    if model.draft is None and not model.versions():
        hint = "the server takes every folder of the repository for a model: move others elsewhere"
    yield Finding(
        "error",
        0,
        "",
        f"{missing}, so the server cannot tell who serves the model; expected a backend; {hint}",
        file="" if model.draft else CONFIG,
    )


def _misnamed(model: Model, backend: str) -> Repair | None:
    right = {"ge_backend": "ge", "ge-backend": "ge", "onnx": "", "npuge": "npu_ge"}.get(backend)
    value = model.root.scalar("backend")
    if not right or value is None:
        return None
    return Repair(f'backend: "{right}"', (Edit(value.start, value.end, f'"{right}"'),))


def _brings(model: Model, backend: str) -> bool:
    """Whether the model's folder has the library itself, where the server looks first."""
    return any(name.endswith(f"libtriton_{backend}.so") for name in model.files)


def _runtime(model: Model, around: Surroundings) -> Iterator[Finding]:
    runtime = model.root.text("runtime")
    if not runtime or any(PurePosixPath(name).name == runtime for name in model.files):
        return
    is_python = model.backend in ("ge", "python")
    if (is_python and runtime not in ("model.py", "libtriton_python.so")) or (
        around.backends
        and not is_python
        and not (around.backends / model.backend / runtime).exists()
    ):
        field = model.root.named("runtime")[-1]
        yield error(
            field.start,
            "runtime",
            f"no backend {model.backend!r} has a library {runtime!r}; "
            "expected no runtime: the server finds it by the backend's name",
            Repair("no runtime", (removal(model.document.text, field),)),
        )
