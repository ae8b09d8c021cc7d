"""Models of CANN's backend `npu_ge`: what it reads without a word, and what it does not read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from gepipe.triton.edit import Edit
from gepipe.triton.models import Model
from gepipe.triton.problem import Finding, Repair, error, warning
from gepipe.triton.rules.cards import model_file
from gepipe.triton.rules.surroundings import Surroundings
from gepipe.triton.signature import tensors
from gepipe.triton.textnodes import Scalar

_PRECISION: Final = "session.ge.exec.precision_mode_v2"
_GEARS: Final = "graph.ge.dynamicDims"
_UNREAD: Final = ("FP64", "BF16", "STRING")
#: Types that it fills in from the model.
_COMPLETED: Final = ("float32", "int8", "uint8", "int16", "uint16", "int32", "int64")
_MOST_STREAMS: Final = 8


def check(model: Model, around: Surroundings) -> Iterator[Finding]:
    """Yield what is wrong with a model of the backend `npu_ge`."""
    if model.backend != "npu_ge":
        return
    yield from _files(model)
    yield from _contents(model, around)
    yield from _batching(model)
    for side in ("input", "output"):
        for tensor in tensors(model, side):
            if tensor.dtype in _UNREAD:
                yield error(
                    tensor.message.start,
                    f"{tensor.path}.data_type",
                    f"is {tensor.dtype}, which "
                    "npu_ge has not; expected FP32, FP16, BOOL or a whole number; cast in the "
                    "model, or in a step before it",
                )
    yield from _parameters(model)


def _files(model: Model) -> Iterator[Finding]:
    models = sorted(n for n in model.files if n.endswith(".onnx")) or sorted(
        name for name in model.files if name.endswith(".pb")
    )
    if not models:
        text = "there is no .onnx or .pb in it; expected the model, which npu_ge compiles itself"
        if any(name.endswith(".om") for name in model.files):
            text += '; it takes no .om: serve that with backend: "ge"'
        yield Finding("error", 0, "", text, file=".")
    elif len(models) > 1:
        text = (
            f"{', '.join(models)}: npu_ge takes the first one it meets, from whatever version, "
            "and which "
            "that is nobody knows; expected one model in all of the folder"
        )
        yield Finding("error", 0, "", text, file=".")
    elif "/" not in models[0] or not PurePosixPath(models[0]).parts[0].isdigit():
        text = "lies outside the folders of versions; expected it in 1/"
        yield Finding("warning", 0, "", text, file=models[0])


def _contents(model: Model, around: Surroundings) -> Iterator[Finding]:
    """Look into the model for what npu_ge does not complete, or not compile."""
    path = model_file(model)
    opened = around.opened(path) if path else None
    if path is None or opened is None:
        return
    file = path.relative_to(model.folder).as_posix()
    for side, theirs in (("input", opened.inputs), ("output", opened.outputs)):
        for name, dtype, shape in theirs or ():
            if not model.root.named(side) and dtype not in _COMPLETED:
                yield error(
                    0,
                    side,
                    f"is missing, and npu_ge does not complete {name!r} of {dtype}; expected it in "
                    "words",
                )
            if side == "output" and -1 in shape[1:]:
                text = (
                    f"an extent of the output {name!r} varies and has no name, which npu_ge "
                    "refuses; expected the name of an input's extent, or arithmetic on such names"
                )
                yield Finding("error", 0, "", text, file=file)


def _batching(model: Model) -> Iterator[Finding]:
    batching = model.root.message("dynamic_batching")
    if batching is None or model.max_batch < 1 or batching.scalars("preferred_batch_size"):
        return
    line = f"preferred_batch_size: [ {model.max_batch} ]"
    field = model.root.named("dynamic_batching")[-1]
    at = batching.start + 1
    yield warning(
        field.start,
        "dynamic_batching",
        "names no preferred_batch_size, without which npu_ge runs "
        f"the requests of a batch one by one; expected {line}",
        Repair(line, (Edit(at, at, f" {line}"),)),
    )


def _entries(model: Model) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    for entry in model.root.messages("parameters"):
        value = entry.message("value")
        if value and (scalar := value.scalar("string_value")):
            found[entry.text("key")] = scalar
    return found


def _parameters(model: Model) -> Iterator[Finding]:
    entries = _entries(model)
    if "device_ids" not in entries and model.root.fields:
        line = 'parameters { key: "device_ids" value: { string_value: "0" } }'
        yield warning(
            0,
            "parameters",
            f"device_ids is missing, so npu_ge takes every card of the machine; expected {line}",
        )
    if _PRECISION not in entries and model.root.fields:
        line = f'parameters {{ key: "{_PRECISION}" value: {{ string_value: "fp16" }} }}'
        yield warning(
            0,
            "parameters",
            f"{_PRECISION} is missing, and npu_ge's own pages disagree on what "
            f"holds then; expected fp16 or origin: {line}",
        )
    for key, value in entries.items():
        if key.startswith(("ge.", "global.")):
            yield warning(
                value.start,
                "parameters",
                f"{key} is not read from here; expected it on the server's "
                f"command line: --backend-config=npu_ge,{key.removeprefix('global.')}="
                f"{value.text}",
            )
    static = entries.get("static_model")
    if static and static.text == "1" and model.max_batch > 0:
        yield warning(
            static.start,
            "parameters",
            f"static_model with max_batch_size {model.max_batch} runs a "
            f"batch row by row; expected gears: {_GEARS}, graph.ge.inputShape and "
            "graph.ge.dynamicNodeType",
        )
    blocks = entries.get("device_exec_blocks")
    if blocks and blocks.text.isdecimal() and int(blocks.text) > _MOST_STREAMS:
        yield warning(
            blocks.start,
            "parameters",
            f"device_exec_blocks is {blocks.text}; expected at most "
            f"{_MOST_STREAMS} streams for a card",
        )
    if _GEARS in entries:
        yield from _gears(model, entries[_GEARS])


def _gears(model: Model, value: Scalar) -> Iterator[Finding]:
    """Compare gears of the batch with the batches that can occur, since npu_ge pads none."""
    sizes = {part.split(",")[0].strip() for part in value.text.split(";")}
    if not all(size.isdecimal() for size in sizes) or model.max_batch < 1:
        return
    missing = sorted(set(range(1, model.max_batch + 1)) - {int(size) for size in sizes})
    if missing:
        yield warning(
            value.start,
            "parameters",
            f"{_GEARS} has no gear for a batch of "
            f"{', '.join(map(str, missing))}, and npu_ge pads none; expected every size from 1 "
            f"to max_batch_size, {model.max_batch}",
        )
