"""The emulator's `.om` files: a graph or only a description, gears, AIPP, and sizes.

This is not Huawei's format, and does not pretend to be: no card takes these files, and the
emulator takes no others. Layout: 16 bytes magic, the lengths of the two parts as u64, little
endian; a JSON description; the ONNX graph, empty for a model that only takes time.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from gepipe.emulator.errors import OmError
from gepipe.tensors import DTYPES

MAGIC: Final = b"gepipe emul om1\n"
#: Name of the input that holds the gear, as atc makes it.
GEAR_INPUT: Final = "ascend_mbatch_shape_data"
#: The chip that these files are for.
SOC: Final = "emulator"
FORMATS: Final = {"NCHW": 0, "NHWC": 1, "ND": 2}

_REAL_MAGIC: Final = b"IMOD"
_HEAD: Final = struct.Struct("<16sQQ")
_NO_FILE, _NO_MODEL = 145002, 145006

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OmTensor:
    """An input or output as the program sees it.

    Attributes:
        name: Its name in the graph.
        dtype: NumPy's name of its type.
        shape: Extents; -1 where a gear or the request decides.
        format: NCHW, NHWC or ND.
    """

    name: str
    dtype: str
    shape: Shape
    format: str = "ND"

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return DTYPES[self.dtype].itemsize


@dataclass(frozen=True, slots=True)
class Gears:
    """The shapes that a model was compiled for.

    Attributes:
        kind: What a gear sets: the batch size, height and width, or any dims.
        values: Each gear: (batch,), (height, width), or a value for every -1 in order.
    """

    kind: Literal["batch", "hw", "dims"]
    values: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Aipp:
    """Static preprocessing compiled into a model, by the names of atc's `aipp_op`.

    Per channel: (x - mean_chn - min_chn) * var_reci_chn, after swap, crop and colour conversion.
    """

    input_format: str = "RGB888_U8"
    src_image_size_w: int = 0
    src_image_size_h: int = 0
    rbuv_swap_switch: bool = False
    crop: bool = False
    load_start_pos_w: int = 0
    load_start_pos_h: int = 0
    crop_size_w: int = 0
    crop_size_h: int = 0
    csc_switch: bool = False
    matrix: tuple[int, ...] = ()
    input_bias: tuple[int, ...] = ()
    mean_chn: tuple[float, ...] = (0.0, 0.0, 0.0)
    min_chn: tuple[float, ...] = (0.0, 0.0, 0.0)
    var_reci_chn: tuple[float, ...] = (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class OmModel:
    """A model of the emulator.

    Attributes:
        name: Its name, which a profile can give latencies to.
        inputs: As the program sees them, without the gear input.
        outputs: As the program sees them.
        graph: The ONNX bytes; empty for a model that only takes time.
        gears: The shapes it was compiled for; None for a static or shape-range model.
        output_shapes: Of each gear, the shape of each output; one entry for a static model.
        ranges: Of a shape-range model: input name to (lowest, highest) per axis, -1 for no bound.
        aipp: Input name to its static preprocessing.
        weight_bytes: Device memory for weights.
        work_bytes: Device memory to work in.
        soc: The chip it was compiled for.
    """

    name: str
    inputs: tuple[OmTensor, ...]
    outputs: tuple[OmTensor, ...]
    graph: bytes = field(default=b"", repr=False)
    gears: Gears | None = None
    output_shapes: tuple[tuple[Shape, ...], ...] = ()
    ranges: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    aipp: Mapping[str, Aipp] = field(default_factory=dict)
    weight_bytes: int = 0
    work_bytes: int = 0
    soc: str = SOC

    @property
    def is_shape_range(self) -> bool:
        """Whether a request may have any shape within ranges."""
        return bool(self.ranges)

    @property
    def gear_count(self) -> int:
        """How many gears there are; 1 for a static model."""
        return len(self.gears.values) if self.gears else 1

    @property
    def gear_axes(self) -> int:
        """How many numbers name a gear; 0 for a model without gears."""
        return len(self.gears.values[0]) if self.gears else 0

    def input_shapes(self, gear: int) -> list[Shape]:
        """Return the shape of each input at a gear."""
        if self.gears is None:
            return [tensor.shape for tensor in self.inputs]
        value = self.gears.values[gear]
        whole = iter(value)
        shapes: list[Shape] = []
        for tensor in self.inputs:
            fill = whole if self.gears.kind == "dims" else iter(value)
            if self.gears.kind == "batch":
                fill = iter(value * len(tensor.shape))
            shapes.append(tuple(next(fill) if each < 0 else each for each in tensor.shape))
        return shapes

    @property
    def largest_gear(self) -> int:
        """The gear with the most input elements."""
        return max(
            range(self.gear_count),
            key=lambda gear: sum(math.prod(shape) for shape in self.input_shapes(gear)),
        )

    def input_bytes(self, index: int) -> int:
        """Return the size of an input at its largest; 0 without a bound."""
        tensor = self.inputs[index]
        if tensor.name in self.ranges:
            upper = [high for _, high in self.ranges[tensor.name]]
            return 0 if -1 in upper else math.prod(upper) * tensor.itemsize
        counts = [math.prod(self.input_shapes(gear)[index]) for gear in range(self.gear_count)]
        count = max(counts)
        aipp = self.aipp.get(tensor.name)
        if aipp is not None and aipp.input_format == "YUV420SP_U8":
            return count // 2  # (n, h, w, 3) in the table; 1.5 bytes a pixel in memory
        return count * tensor.itemsize

    def output_bytes(self, index: int) -> int:
        """Return the size of an output at its largest; 0 without a bound."""
        if self.is_shape_range:
            return 0
        counts = [math.prod(self.output_shapes[gear][index]) for gear in range(self.gear_count)]
        return max(counts) * self.outputs[index].itemsize


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
        data = Path(path).read_bytes()
    except OSError as error:
        raise OmError(f"{path}: {error.strerror}", _NO_FILE) from error
    return parse_om(data, str(path))


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
