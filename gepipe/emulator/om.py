"""The emulator's `.om` files: a graph or only a description, gears, AIPP, and sizes.

This is not Huawei's format, and does not pretend to be: no card takes these files, and the
emulator takes no others. Layout: 16 bytes magic, the lengths of the two parts as u64, little
endian; a JSON description; the ONNX graph, empty for a model that only takes time.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from gepipe.emulator.errors import OmError
from gepipe.emulator.ommodel import (
    FORMATS,
    GEAR_INPUT,
    SOC,
    Aipp,
    Gears,
    OmModel,
    OmTensor,
    Shape,
)
from gepipe.tensors import DTYPES

MAGIC: Final = b"gepipe emul om1\n"
_REAL_MAGIC: Final = b"IMOD"
_HEAD: Final = struct.Struct("<16sQQ")
_NO_FILE, _NO_MODEL = 145002, 145006

__all__ = [
    "FORMATS",
    "GEAR_INPUT",
    "MAGIC",
    "SOC",
    "Aipp",
    "Gears",
    "OmModel",
    "OmTensor",
    "Shape",
    "parse_om",
    "read_om",
    "write_om",
]


def write_om(  # noqa: PLR0913 - they belong together
    path: Path | str,
    graph: bytes | None,
    *,
    inputs: Sequence[OmTensor],
    outputs: Sequence[OmTensor],
    name: str = "",
    gears: Gears | None = None,
    output_shapes: Sequence[Sequence[Shape]] = (),
    ranges: Mapping[str, Sequence[tuple[int, int]]] | None = None,
    aipp: Mapping[str, Aipp] | None = None,
    weight_bytes: int | None = None,
    work_bytes: int | None = None,
    soc: str = SOC,
) -> OmModel:
    """Write a model of the emulator, and return it.

    Args:
        path: Where to.
        graph: ONNX bytes; None for a model that only takes time.
        inputs: As the program will see them.
        outputs: As the program will see them.
        name: Its name; the file's by default.
        gears: The shapes it is compiled for.
        output_shapes: Of each gear, the shape of each output. By default the outputs' own shapes,
            with the batch size for -1.
        ranges: Of a shape-range model: input name to (lowest, highest) per axis.
        aipp: Input name to static preprocessing.
        weight_bytes: By default about what the graph's weights take.
        work_bytes: By default in proportion to inputs and outputs.
        soc: The chip it is for.

    Raises:
        ValueError: The parts contradict each other.
    """
    model = OmModel(
        name or Path(path).stem,
        tuple(inputs),
        tuple(outputs),
        graph or b"",
        gears,
        ranges={
            key: tuple((low, high) for low, high in each) for key, each in (ranges or {}).items()
        },
        aipp=dict(aipp or {}),
        soc=soc,
    )
    _validate(model)
    if not output_shapes and not ranges:
        output_shapes = [_filled(outputs, gear) for gear in (gears.values if gears else [()])]
    shapes = tuple(tuple(tuple(shape) for shape in each) for each in output_shapes)
    model = replace(model, output_shapes=shapes)
    flow = sum(model.input_bytes(i) for i in range(len(model.inputs)))
    flow += sum(model.output_bytes(i) for i in range(len(model.outputs)))
    sizes = {
        "weight_bytes": len(model.graph) if weight_bytes is None else weight_bytes,
        "work_bytes": 3 * flow + (1 << 20) if work_bytes is None else work_bytes,
    }
    described = asdict(model) | sizes
    described["graph"] = hashlib.sha256(model.graph).hexdigest()
    meta = json.dumps(described).encode()
    head = _HEAD.pack(MAGIC, len(meta), len(model.graph))
    Path(path).write_bytes(b"".join((head, meta, model.graph)))
    return read_om(path)


def _filled(outputs: Sequence[OmTensor], gear: Shape) -> list[Shape]:
    if len(gear) > 1 and any(-1 in tensor.shape for tensor in outputs):
        raise ValueError("give output_shapes: gears other than the batch size do not tell them")
    return [tuple(gear[0] if n < 0 and gear else n for n in tensor.shape) for tensor in outputs]


def _validate(model: OmModel) -> None:
    for tensor in (*model.inputs, *model.outputs):
        if tensor.dtype not in DTYPES:
            raise ValueError(f"{tensor.name}: unknown dtype {tensor.dtype!r}")
        if tensor.format not in FORMATS:
            raise ValueError(f"{tensor.name}: unknown format {tensor.format!r}")
    dynamic = sum(tensor.shape.count(-1) for tensor in model.inputs)
    if model.gears is None:
        if dynamic and not model.ranges:
            raise ValueError("an input has -1 in its shape, but there are no gears and no ranges")
        return
    axes = {"batch": 1, "hw": 2, "dims": dynamic}[model.gears.kind]
    if not dynamic or not model.gears.values:
        raise ValueError("gears need values, and an input with -1 in its shape")
    if any(len(value) != axes or min(value) < 1 for value in model.gears.values):
        raise ValueError(f"each gear must be {axes} numbers from 1: {model.gears.values}")
    if model.gears.kind == "dims" and model.aipp:
        raise ValueError("atc does not combine AIPP with dynamic dims")


def read_om(path: Path | str) -> OmModel:
    """Read a model of the emulator.

    Raises:
        OmError: It is missing or something else, and what.
    """
    try:
        stat = Path(path).stat()
        return _read(str(path), stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        raise OmError(f"{path}: {error.strerror}", _NO_FILE) from error


@lru_cache(maxsize=1)  # a program sizes, describes and loads one file in a row
def _read(path: str, *_unchanged: int) -> OmModel:
    return parse_om(Path(path).read_bytes(), path)


def parse_om(data: bytes, what: str = "the model") -> OmModel:
    """Read a model from the bytes of its file.

    Raises:
        OmError: It is something else, and what.
    """
    if not data.startswith(MAGIC):
        raise OmError(f"{what}: Invalid om file: {_guess(data)}", _NO_MODEL)
    try:
        _, meta_bytes, graph_bytes = _HEAD.unpack_from(data)
        if len(data) != _HEAD.size + meta_bytes + graph_bytes:
            raise OmError(f"{what}: Invalid om file: it is truncated", _NO_MODEL)
        raw = json.loads(data[_HEAD.size : _HEAD.size + meta_bytes])
        graph = data[_HEAD.size + meta_bytes :]
        if hashlib.sha256(graph).hexdigest() != raw["graph"]:
            raise OmError(f"{what}: Invalid om file: it is damaged", _NO_MODEL)
        return _parsed(raw, graph)
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise OmError(f"{what}: Invalid om file: {error}", _NO_MODEL) from error


def _parsed(raw: dict[str, Any], graph: bytes) -> OmModel:
    def tensors(key: str) -> tuple[OmTensor, ...]:
        return tuple(OmTensor(**{**each, "shape": tuple(each["shape"])}) for each in raw[key])

    def tuples(value: Any) -> Any:
        return tuple(tuples(each) for each in value) if isinstance(value, list) else value

    gears = raw["gears"]
    return OmModel(
        **{
            **raw,
            "inputs": tensors("inputs"),
            "outputs": tensors("outputs"),
            "graph": graph,
            "gears": Gears(gears["kind"], tuples(gears["values"])) if gears else None,
            "output_shapes": tuples(raw["output_shapes"]),
            "ranges": {name: tuples(each) for name, each in raw["ranges"].items()},
            "aipp": {
                name: Aipp(**{key: tuples(value) for key, value in each.items()})
                for name, each in raw["aipp"].items()
            },
        }
    )


def _guess(data: bytes) -> str:
    if data.startswith(_REAL_MAGIC):
        return (
            "it is a model for real cards; the emulator runs those that were made with "
            "`gepipe model convert --soc emulator`"
        )
    if (data[:1] == b"\x08" and b"ai.onnx" in data) or b"\x12\x07pytorch" in data[:64]:
        return "this is ONNX; convert it with `gepipe model convert --soc emulator`"
    if data[:1] == b"\x08":
        return "this looks like ONNX; convert it with `gepipe model convert --soc emulator`"
    return "unknown contents" if data else "it is empty"
