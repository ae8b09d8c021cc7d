"""Parameters, warm-up, and what a backend in Python leaves unread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gepipe.triton.models import Model
from gepipe.triton.placing import removal
from gepipe.triton.problem import Finding, Repair, error, warning
from gepipe.triton.rules.surroundings import Surroundings
from gepipe.triton.signature import Tensor, tensors
from gepipe.triton.textnodes import Message

_ENVIRONMENT: Final = "EXECUTION_ENV_PATH"
_OWN_FOLDER: Final = "$$TRITON_MODEL_DIRECTORY"


def check(model: Model, around: Surroundings) -> Iterator[Finding]:
    """Yield what is wrong with the rest of a configuration."""
    del around
    root = model.root
    for name in ("parameters", "metric_tags", "cc_model_filenames"):
        yield from _twice(root, name, name)
    if model.backend in ("python", "ge"):
        yield from _environment(model)
        yield from _space(model)
        optimization = root.message("optimization")
        if optimization and optimization.named("execution_accelerators"):
            field = optimization.named("execution_accelerators")[0]
            yield warning(
                field.start,
                "optimization.execution_accelerators",
                "is not read by a backend in Python; expected none",
                Repair("no execution_accelerators", (removal(model.document.text, field),)),
            )
    for number, warmup in enumerate(root.messages("model_warmup")):
        yield from _warmup(model, warmup, f"model_warmup[{number}]")


def _space(model: Model) -> Iterator[Finding]:
    """Look for spaces, at which the shell that starts Python cuts the path."""
    if " " in model.name:
        text = "the server breaks off on the space in its name; expected a name without spaces"
        yield Finding("error", 0, "", text, file=".")
    elif " " in str(model.folder.absolute()):
        text = (
            "there is a space in its path, on which tritonserver breaks off when it starts Python; "
            "expected a path without spaces, or `gepipe triton serve`, which goes round it"
        )
        yield Finding("warning", 0, "", text, file=".")


def _twice(message: Message, name: str, path: str) -> Iterator[Finding]:
    seen: set[str] = set()
    for number, entry in enumerate(message.messages(name)):
        key = entry.text("key")
        if key in seen:
            yield warning(
                entry.start,
                f"{path}[{number}].key",
                f"is {key!r} a second time, and the last one "
                "counts without a word; expected each key once",
            )
        seen.add(key)


def _environment(model: Model) -> Iterator[Finding]:
    for number, entry in enumerate(model.root.messages("parameters")):
        value = entry.message("value")
        scalar = value.scalar("string_value") if value else None
        if entry.text("key") != _ENVIRONMENT or scalar is None:
            continue
        where = f"parameters[{number}].value.string_value"
        if scalar.text.startswith(_OWN_FOLDER):
            inside = scalar.text.removeprefix(_OWN_FOLDER).strip("/")
            if inside not in model.files and inside not in model.folders:
                yield error(
                    scalar.start,
                    where,
                    f"there is no {inside!r} in the model's folder; expected "
                    "an environment packed by conda-pack, or a folder with bin/activate",
                )
        elif not Path(scalar.text).exists():
            yield error(
                scalar.start,
                where,
                f"there is no {scalar.text!r} on this machine; expected an "
                "environment packed by conda-pack, or a folder with bin/activate",
            )


def _warmup(model: Model, warmup: Message, path: str) -> Iterator[Finding]:
    size = warmup.scalar("batch_size")
    if size and (size.integer or 0) > model.max_batch > 0:
        yield error(
            size.start,
            f"{path}.batch_size",
            f"is above max_batch_size, {model.max_batch}, on which "
            "the server does not finish loading; expected no more",
        )
    listed = {tensor.name: tensor for tensor in tensors(model, "input")}
    if not listed:
        return
    given: set[str] = set()
    for number, entry in enumerate(warmup.messages("inputs")):
        key, value = entry.text("key"), entry.message("value")
        given.add(key)
        where = f"{path}.inputs[{number}]"
        if key not in listed:
            yield error(
                entry.start,
                f"{where}.key",
                f"there is no input {key!r}; expected one of {', '.join(listed)}",
            )
        elif value:
            yield from _warm_input(model, value, listed[key], where)
    missing = [t.name for t in listed.values() if t.name not in given and not t.is_optional]
    if missing:
        yield error(
            warmup.start, f"{path}.inputs", f"has not {', '.join(missing)}; expected every input"
        )


def _warm_input(model: Model, value: Message, tensor: Tensor, where: str) -> Iterator[Finding]:
    dims = tuple(each.integer or 0 for each in value.scalars("dims"))
    dtype = value.text("data_type").removeprefix("TYPE_")
    if dtype and not dtype.isdecimal() and dtype != tensor.dtype:
        yield error(
            value.start,
            f"{where}.value.data_type",
            f"is {dtype}, but the input is {tensor.dtype}; expected TYPE_{tensor.dtype}",
        )
    if -1 in dims:
        yield error(value.start, f"{where}.value.dims", "has -1; expected every extent in numbers")
    elif len(dims) != len(tensor.dims) or any(
        b not in (a, -1) for a, b in zip(dims, tensor.dims, strict=True)
    ):
        yield error(
            value.start,
            f"{where}.value.dims",
            f"is {list(dims)}, but the input's is {list(tensor.dims)}; expected one that fits",
        )
    file = value.scalar("input_data_file")
    if not (file or value.named("zero_data") or value.named("random_data")):
        yield error(
            value.start,
            f"{where}.value",
            "says no data; expected zero_data: true, random_data: true or input_data_file",
        )
    elif file and f"warmup/{file.text}" not in model.files:
        yield error(
            file.start,
            f"{where}.value.input_data_file",
            f"there is no warmup/{file.text} in the model's folder; expected a file",
        )
