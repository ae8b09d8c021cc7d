"""A model of the emulator: tensors, gears, preprocessing, sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from gepipe.tensors import DTYPES

#: Name of the input that holds the gear, as atc makes it.
GEAR_INPUT: Final = "ascend_mbatch_shape_data"
#: The chip that these files are for.
SOC: Final = "emulator"
FORMATS: Final = {"NCHW": 0, "NHWC": 1, "ND": 2}

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
