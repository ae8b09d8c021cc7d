"""Whether what a stage makes is what the next one takes: names, data types, shapes, batches.

Each mismatch names both ends and what to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gepipe.engines.gears import portions
from gepipe.io.files import FileReader
from gepipe.io.textfiles import TextReader
from gepipe.ops.decode import DecodeImage
from gepipe.ops.geometry import Geometry
from gepipe.ops.plan import PreProgram, plan_pre
from gepipe.ops.tensor import Cast, Normalize, ToTensor
from gepipe.tensors import DYNAMIC, TensorSpec

if TYPE_CHECKING:
    from gepipe.io.source import Reader
    from gepipe.runtime.body import ModelInfo
    from gepipe.spec.model import PipelineSpec

#: How many channels pictures have.
_CHANNELS = (1, 3, 4)


def input_mismatches(spec: PipelineSpec, info: ModelInfo, *, aipp: bool = False) -> Iterator[str]:
    """Compare what the pre stage makes with the model's inputs.

    Args:
        spec: The pipeline as it is run.
        info: What the model says of itself.
        aipp: Whether normalize and to_tensor were left to the model.
    """
    program = plan_pre(spec.pre.ops)
    made = program.output_specs()
    if made is None:
        return
    stage = spec.pre.name
    if program.tensors:
        for row in info.inputs:
            yield from _unfilled(stage, program, row)
        return
    if len(info.inputs) > 1:
        takes = ", ".join(f"{row.name!r} {text(row)}" for row in info.inputs)
        yield (
            f"stage {stage!r} makes one tensor, {text(made)}; the model has {len(info.inputs)} "
            f"inputs: {takes}; end the stage with `- python: module:function` that returns a dict "
            "of name to array"
        )
        return
    (row,) = info.inputs
    if row.accepts(made):
        return
    remedy = _remedy(made, row, info.gears)
    if aipp and row.dtype != "uint8":
        remedy = "it has no AIPP: convert it with --aipp-from, or leave `aipp: true` out"
    elif row.dtype == "uint8" and isinstance(spec.pre.ops[-1], Normalize | ToTensor):
        remedy = (
            "drop normalize and to_tensor, which a model that was converted with --aipp-from does "
            "itself, or set `backend: {ge: {aipp: true}}`"
        )
    yield (
        f"stage {stage!r} makes {text(made)}; the model's input {row.name!r} takes {text(row)}; "
        f"{remedy}"
    )


def _unfilled(stage: str, program: PreProgram, row: TensorSpec) -> Iterator[str]:
    """Say why one of several inputs cannot be filled."""
    made = program.output_for(row)
    last = program.ops[-1].title.partition(" ")[0]
    if row.name not in program.tensors:
        yield (
            f"stage {stage!r}: {last} makes {', '.join(map(repr, program.tensors))}; the model has "
            f"the input {row.name!r}, {text(row)}; name it in `inputs:` of {last}, or end the "
            "stage with `- python: module:function` that returns a dict of name to array"
        )
    elif made is not None and not row.accepts(made):
        remedy = "export the model with the length open"
        if made.dtype == row.dtype and len(row.shape) == 1:
            remedy = f"set max_length: {row.shape[0]}"
        yield (
            f"stage {stage!r} makes {text(made)}; the model's input {row.name!r} takes "
            f"{text(row)}; {remedy}"
        )


def undecoded_source(spec: PipelineSpec, reader: Reader) -> Iterator[str]:
    """Say that the source gives something else than the first operator, or the model, takes."""
    ops = spec.pre.ops
    if isinstance(reader, TextReader):
        if ops and isinstance(ops[0], DecodeImage | Geometry | Normalize | Cast | ToTensor):
            yield (
                f"the source gives texts, but stage {spec.pre.name!r} begins with {ops[0].title}; "
                "use the source images, or put `- tokenize` first"
            )
        return
    if not isinstance(reader, FileReader) or (
        ops and not isinstance(ops[0], Geometry | Normalize | Cast | ToTensor)
    ):
        return
    first = f"begins with {ops[0].title}" if ops else "has no operators"
    yield (
        f"the source gives the bytes of files, but stage {spec.pre.name!r} {first}; "
        "put `- decode_image` first"
    )


def unknown_input(spec: PipelineSpec, info: ModelInfo) -> Iterator[str]:
    """Say what cannot be compared before the run."""
    if plan_pre(spec.pre.ops).output_specs() is None:
        takes = ", ".join(f"{row.name!r} {text(row)}" for row in info.inputs)
        yield (
            f"what stage {spec.pre.name!r} makes is only known when it runs; the model takes "
            f"{takes}; items that do not fit will be set aside"
        )


def open_size(spec: PipelineSpec, info: ModelInfo) -> Iterator[str]:
    """Say that only items of one size will fit, and nothing makes them that size."""
    made = plan_pre(spec.pre.ops).output_specs()
    if made is None or len(info.inputs) != 1:
        return
    (row,) = info.inputs
    known = [its != DYNAMIC for its in made.shape]
    if not any(known) or not row.accepts(made):
        return  # nothing is known, or it is told as a mismatch
    open_axes = [
        axis
        for axis, (mine, its) in enumerate(zip(row.shape, known, strict=True))
        if mine != DYNAMIC and not its
    ]
    if open_axes == [_channel_axis(row)]:
        yield (
            f"how many channels stage {spec.pre.name!r} makes is only known when it runs; the "
            f"model's input {row.name!r} takes {text(row)}; items with others will be set aside"
        )
    elif open_axes:
        yield (
            f"stage {spec.pre.name!r} makes {text(made)}, as large as the inputs are; the model's "
            f"input {row.name!r} takes {text(row)}: all others will be set aside; add a resize, "
            "center_crop or letterbox to that size"
        )


def _channel_axis(row: TensorSpec) -> int | None:
    """Return which axis of an image a model has its channels in."""
    if len(row.shape) != 3:
        return None
    return 0 if row.shape[0] in _CHANNELS else 2


def _remedy(made: TensorSpec, row: TensorSpec, gears: Sequence[int]) -> str:
    ours, theirs = made.shape, row.shape
    if len(gears) == 1 and ours == (gears[0], *theirs):
        return (
            "the model seems to have no batch axis: its first axis is as long as an item's; export "
            "it with the batch as the first axis of each input and output"
        )
    hints = []
    if len(ours) == 3 == len(theirs) and not _fits(ours, theirs):
        if _fits((ours[2], *ours[:2]), theirs):
            return "use `- to_tensor: {layout: nchw}` as the last operator"
        if _fits((*ours[1:], ours[0]), theirs):
            return "use `- to_tensor: {layout: nhwc}` as the last operator"
        first = theirs[0] in _CHANNELS  # else the channel is the last axis
        channels = (ours[0], theirs[0]) if first else (ours[2], theirs[2])
        size = (ours[1:], theirs[1:]) if first else (ours[:2], theirs[:2])
        if not _fits(*size):
            wanted = ", ".join("any" if n == DYNAMIC else str(n) for n in size[1])
            hints.append(f"set the size in resize, center_crop or letterbox to [{wanted}]")
        if not _fits(channels[:1], channels[1:]):
            color = {1: "gray", 3: "rgb or bgr"}.get(channels[1])
            hints.append(
                f"use `decode_image: {{color: …}}` with {color}"
                if color
                else f"make {channels[1]} channels"
            )
    elif len(ours) != len(theirs):
        hints.append(f"make {len(theirs)} axes for one item, without the batch")
    elif not _fits(ours, theirs):
        hints.append(f"make the shape {_extents(theirs)}")
    if made.dtype != row.dtype:
        hints.append(f"add `- cast: {row.dtype}` at the end, or normalize for float32")
    return " and ".join(hints)


def _fits(ours: Sequence[int], theirs: Sequence[int]) -> bool:
    return len(ours) == len(theirs) and all(
        a == b or DYNAMIC in (a, b) for a, b in zip(ours, theirs, strict=True)
    )


def batch_mismatches(spec: PipelineSpec, info: ModelInfo) -> Iterator[str]:
    """Say how much of the model's work would be padding."""
    batch = spec.pre.batch_size
    if batch == "auto" or not info.gears:
        return
    executed = sum(portion.gear for portion in portions(batch, info.gears))
    if executed == batch:
        return
    sizes = ", ".join(map(str, info.gears))
    yield (
        f"stage {spec.pre.name!r} makes batches of {batch}; the model takes {sizes} rows at a "
        f"time: {executed - batch} of {executed} rows it computes are padding; set batch_size to "
        f"a multiple of {info.gears[-1]}, or leave it out"
    )


def text(spec: TensorSpec) -> str:
    """Return data type and shape, such as `float32 [3, 224, 224]`."""
    return f"{spec.dtype} {_extents(spec.shape)}"


def _extents(shape: Sequence[int]) -> str:
    return f"[{', '.join('any' if extent == DYNAMIC else str(extent) for extent in shape)}]"
