"""Inputs and outputs: names, types, extents, and whether they are those of the model file."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

from gepipe.tensors import DTYPES
from gepipe.triton.edit import Edit
from gepipe.triton.models import Model
from gepipe.triton.problem import Finding, Repair, error, warning
from gepipe.triton.rules.cards import model_file
from gepipe.triton.rules.surroundings import Surroundings
from gepipe.triton.signature import Tensor, tensors

#: Backends that fill in what a configuration leaves out, from the model file.
_COMPLETING: Final = (
    "ge",
    "npu_ge",
    "onnxruntime",
    "tensorrt",
    "tensorflow",
    "openvino",
    "pytorch",
)


_STRING: Final = "STRING"
#: What the backend `ge` takes as elements of bytes, too.
_BYTES: Final = ("uint8", "int8")


def check(model: Model, around: Surroundings) -> Iterator[Finding]:
    """Yield what is wrong with the inputs and outputs."""
    for side in ("input", "output"):
        listed = tensors(model, side)
        if not listed and model.root.fields:
            yield from _none(model, around, side)
        names: set[str] = set()
        for tensor in listed:
            yield from _tensor(model, tensor, names)
            names.add(tensor.name)
        yield from _against_file(model, around, side, listed)


def _none(model: Model, around: Surroundings, side: str) -> Iterator[Finding]:
    if model.backend == "ensemble":
        yield error(0, side, f"an ensemble has no {side}; expected at least one")
    elif model.backend == "ge" and _is_for_cards(model, around):
        yield error(
            0, side, "is missing, and an .om model tells it only to a card; expected it in words"
        )
    elif model.backend in _COMPLETING:
        yield warning(
            0,
            side,
            "is missing, so the backend fills it in from the model, and nothing "
            "does where the server runs with --disable-auto-complete-config; expected it "
            "in words",
        )
    # For python, the rule that reads model.py knows more.


def _is_for_cards(model: Model, around: Surroundings) -> bool:
    path = model_file(model)
    opened = around.opened(path) if path else None
    return opened is not None and opened.kind == "om"


def _tensor(model: Model, tensor: Tensor, names: set[str]) -> Iterator[Finding]:
    message, start = tensor.message, tensor.message.start
    if not tensor.name:
        yield error(start, f"{tensor.path}.name", "is missing; expected the tensor's name")
    elif tensor.name in names:
        yield error(
            start,
            f"{tensor.path}.name",
            f"is {tensor.name!r} a second time, which the server "
            "takes without a word; expected each name once",
        )
    if not message.named("data_type"):
        yield error(
            start, f"{tensor.path}.data_type", "is missing; expected a type, such as TYPE_FP32"
        )
    elif tensor.dtype == "INVALID" and message.text("data_type") in ("TYPE_INVALID", "0"):
        yield error(
            start, f"{tensor.path}.data_type", "is TYPE_INVALID; expected a type, such as TYPE_FP32"
        )
    if not message.scalars("dims"):
        if not message.named("shape"):
            yield error(
                start,
                f"{tensor.path}.dims",
                "is missing; expected the extents of one item, -1 where one varies",
            )
        return
    for value in message.scalars("dims"):
        if value.integer is not None and (value.integer == 0 or value.integer < -1):
            yield error(
                value.start,
                f"{tensor.path}.dims",
                f"has {value.source}; expected 1 or more, or -1 where the extent varies",
            )
    yield from _reshape(tensor)
    label = message.scalar("label_filename")
    if label and label.text not in model.files:
        inside = [name for name in model.files if name.endswith(f"/{label.text}")]
        repair = (
            Repair(f'"{inside[0]}"', (Edit(label.start, label.end, f'"{inside[0]}"'),))
            if (len(inside) == 1)
            else None
        )
        yield error(
            label.start,
            f"{tensor.path}.label_filename",
            f"there is no {label.text!r} in the "
            "model's folder, beside config.pbtxt; expected a file"
            + (f"; it is at {inside[0]}" if repair else ""),
            repair,
        )
    if message.text("format") in ("FORMAT_NCHW", "FORMAT_NHWC") and len(tensor.dims) != 3:
        yield error(
            start,
            f"{tensor.path}.format",
            f"is for three extents, but dims has {len(tensor.dims)}; expected three, or no format",
        )


def _reshape(tensor: Tensor) -> Iterator[Finding]:
    reshape = tensor.message.message("reshape")
    if reshape is None:
        return
    shape = [value.integer or 0 for value in reshape.scalars("shape")]
    if -1 not in tensor.dims and -1 not in shape and prod(tensor.dims) != prod(shape):
        yield error(
            reshape.start,
            f"{tensor.path}.reshape",
            f"has {prod(shape)} elements for dims of {prod(tensor.dims)}; expected as many",
        )


def _against_file(
    model: Model, around: Surroundings, side: str, listed: list[Tensor]
) -> Iterator[Finding]:
    """Compare with what the model file says of itself, where it says anything."""
    # What a Python model does with a file beside it is its own affair.
    path = model_file(model) if model.backend != "python" else None
    opened = around.opened(path) if path else None
    theirs = (opened.inputs if side == "input" else opened.outputs) if opened else None
    if theirs is None:
        for tensor in listed:
            yield from _suspicious(tensor)
        return
    known = {name: (dtype, shape) for name, dtype, shape in theirs}
    for tensor in listed:
        if tensor.name not in known:
            yield error(
                tensor.message.start,
                f"{tensor.path}.name",
                f"the model has no {side} {tensor.name!r}; expected one of {', '.join(known)}",
            )
            continue
        dtype, shape = known[tensor.name]
        if model.backend == "ge" and tensor.dtype == _STRING and dtype in _BYTES:
            yield from _raw(tensor, dtype, shape)
            continue
        triton = DTYPES[dtype].triton if dtype in DTYPES else _STRING if dtype == "string" else ""
        value = tensor.message.scalar("data_type")
        if value and triton and tensor.dtype != triton:
            yield error(
                value.start,
                f"{tensor.path}.data_type",
                f"is {tensor.dtype}, but the model's "
                f"{tensor.name!r} is {dtype}; expected TYPE_{triton}",
                Repair(f"TYPE_{triton}", (Edit(value.start, value.end, f"TYPE_{triton}"),)),
            )
        yield from _extents(tensor, shape)


def _raw(tensor: Tensor, dtype: str, shape: tuple[int | str, ...]) -> Iterator[Finding]:
    """Look at a tensor whose rows are told to travel as one element of bytes each."""
    row = shape[1:]
    dims = tensor.dims if tensor.max_batch > 0 else tensor.dims[1:]
    own = f"but the model's {tensor.name!r} is {dtype} {list(shape)}"
    values = tensor.message.scalars("dims")
    if values and dims not in ((), (1,)):
        yield error(
            values[0].start,
            f"{tensor.path}.dims",
            f"is {list(tensor.dims)} of STRING, {own}; expected [ 1 ]: one element holds all bytes "
            "of a row",
        )
    if not all(isinstance(extent, int) and extent >= 0 for extent in row):
        yield error(
            tensor.message.start,
            f"{tensor.path}.data_type",
            f"is STRING, {own}, whose rows have no fixed size; expected "
            f"TYPE_{DTYPES[dtype].triton}",
        )


def _extents(tensor: Tensor, shape: tuple[int | str, ...]) -> Iterator[Finding]:
    has = [extent if isinstance(extent, int) else -1 for extent in shape]
    # The server has no dims for a row that is a single number.
    row = (has[1:] or [1]) if tensor.max_batch > 0 else has
    values = tensor.message.scalars("dims")
    if not values or tensor.message.named("reshape"):
        return
    if len(tensor.dims) == len(row) and all(
        a == b or -1 in (a, b) for a, b in zip(tensor.dims, row, strict=True)
    ):
        return
    said = f"{list(tensor.dims)} is not what the model's {tensor.name!r} has, {list(shape)}"
    repair, more = None, ""
    if tensor.max_batch > 0 and len(tensor.dims) == len(has) and len(has) > 1:
        more = ", without the batch, which max_batch_size stands for"
        repair = Repair("dims without the batch", (Edit(values[0].start, values[1].start, ""),))
    yield error(values[0].start, f"{tensor.path}.dims", f"{said}; expected {row}{more}", repair)


def _suspicious(tensor: Tensor) -> Iterator[Finding]:
    values = tensor.message.scalars("dims")
    if (
        tensor.max_batch > 0
        and len(tensor.dims) == 4
        and tensor.dims[0] in (-1, 1, tensor.max_batch)
    ):
        yield warning(
            values[0].start,
            f"{tensor.path}.dims",
            f"{list(tensor.dims)} looks as if it began "
            "with the batch, which max_batch_size stands for already; expected "
            f"{list(tensor.dims[1:])} if it does",
        )
