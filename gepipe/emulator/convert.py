"""Making the emulator's models of ONNX graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gepipe.emulator.compute import DTYPE_OF_ORT, OnnxRuntime
from gepipe.emulator.om import Aipp, Gears, OmModel, OmTensor, Shape, write_om
from gepipe.emulator.preprocess import has_channels_first


def describe_onnx(graph: bytes) -> tuple[list[OmTensor], list[OmTensor]]:
    """Return the inputs and outputs of an ONNX graph; -1 for any extent that it leaves open."""
    session = _session(graph)
    return _tensors(session.get_inputs()), _tensors(session.get_outputs())


def convert_onnx(  # noqa: PLR0913 - as many as atc has
    path: Path | str,
    graph: bytes,
    *,
    input_shapes: Mapping[str, Shape] | None = None,
    gears: Gears | None = None,
    ranges: Mapping[str, Sequence[tuple[int, int]]] | None = None,
    aipp: Mapping[str, Aipp] | None = None,
    input_format: str = "NCHW",
    name: str = "",
) -> OmModel:
    """Write a model that computes an ONNX graph.

    Args:
        path: Where to.
        graph: The ONNX bytes.
        input_shapes: Shapes of inputs, -1 where a gear decides. By default the graph's own.
        gears: The shapes to compile for.
        ranges: Of a shape-range model: input name to (lowest, highest) per axis.
        aipp: Input name to static preprocessing; such an input becomes uint8 NHWC.
        input_format: Of inputs with four axes.
        name: Its name; the file's by default.

    Raises:
        ValueError: A name is unknown, or a shape stays open without gears or ranges.
    """
    inputs, outputs = describe_onnx(graph)
    named = {tensor.name for tensor in inputs}
    for given in (input_shapes or {}, ranges or {}, aipp or {}):
        if unknown := sorted(given.keys() - named):
            raise ValueError(f"no input is named {unknown[0]!r}; the graph has {sorted(named)}")
    seen = [
        _as_seen(tensor, input_shapes or {}, aipp or {}, ranges or {}, input_format)
        for tensor in inputs
    ]
    shapes: list[list[Shape]] = []
    if not ranges:
        draft = OmModel("draft", tuple(seen), tuple(outputs), graph, gears, aipp=dict(aipp or {}))
        if gears is None and any(-1 in tensor.shape for tensor in seen):
            raise ValueError("a shape stays open: give input_shapes, gears or ranges")
        shapes = [_output_shapes(draft, gear) for gear in range(draft.gear_count)]
        outputs = [
            OmTensor(tensor.name, tensor.dtype, shapes[draft.largest_gear][index], tensor.format)
            for index, tensor in enumerate(outputs)
        ]
    return write_om(
        path,
        graph,
        inputs=seen,
        outputs=outputs,
        name=name,
        gears=gears,
        output_shapes=shapes,
        ranges=ranges,
        aipp=aipp,
    )


def _session(graph: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _tensors(nodes: Sequence[Any]) -> list[OmTensor]:
    return [
        OmTensor(
            node.name,
            DTYPE_OF_ORT[node.type],
            tuple(each if isinstance(each, int) and each >= 0 else -1 for each in node.shape),
        )
        for node in nodes
    ]


def _as_seen(
    tensor: OmTensor,
    input_shapes: Mapping[str, Shape],
    aipp: Mapping[str, Aipp],
    ranges: Mapping[str, Any],
    input_format: str,
) -> OmTensor:
    """Return an input as the program sees it."""
    shape = tuple(input_shapes.get(tensor.name, tensor.shape))
    if tensor.name in ranges:
        shape = tuple(low if low == high else -1 for low, high in ranges[tensor.name])
    form = input_format if len(shape) == 4 else "ND"
    config = aipp.get(tensor.name)
    if config is None:
        return OmTensor(tensor.name, tensor.dtype, shape, form)
    batch, height, width, channels = shape
    if has_channels_first(shape):
        batch, channels, height, width = shape
    if config.input_format == "XRGB8888_U8":
        channels = 4
    if config.input_format == "YUV400_U8":
        channels = 1
    height = config.src_image_size_h or height
    width = config.src_image_size_w or width
    return OmTensor(tensor.name, "uint8", (batch, height, width, channels), "NHWC")


def _output_shapes(draft: OmModel, gear: int) -> list[Shape]:
    import numpy as np

    zeros = []
    for index, (tensor, shape) in enumerate(
        zip(draft.inputs, draft.input_shapes(gear), strict=True)
    ):
        aipp = draft.aipp.get(tensor.name)
        if aipp is not None and aipp.input_format == "YUV420SP_U8":
            zeros.append(np.zeros(draft.input_bytes(index), np.uint8))
        else:
            zeros.append(np.zeros(shape, tensor.dtype))
    return [tuple(result.shape) for result in OnnxRuntime(draft).run(zeros, ())]
