"""NanoDet-g: the published TensorFlow.js graph as an ONNX model with the layout of YOLOv8.

Input `images` float32 (batch, 3, 416, 416): BGR, `(value - mean) / std` for each channel. Output
`output0` float32 (batch, 84, 3549): of each of 3549 places the centre, width and height of a box
in pixels of the input, and the scores of the 80 COCO classes, 0 to 1.

The graph is a chain of transposes, paddings and convolutions. Here every map stays channels first,
so that a transpose only changes which axis is which; paddings and biases move into the
convolutions. The end of each of the three heads, where the published graph stops at
distributions, is written anew: the expected distances to the four sides.

The bytes depend on the weights alone (opset and IR version are fixed, and no arithmetic is done),
so the finished file can be pinned by its SHA-256.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from . import tfjs

SIDE_PX = 416
CLASSES = 80
STRIDES = (8, 16, 32)
_BINS = 11  # a distance is a distribution over 0 to 10 strides
_OPSET, _IR_VERSION = 13, 8  # what ATC and every supported ONNX Runtime read
_TO_LAST, _TO_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]


def convert(model: bytes, weights: bytes) -> bytes:
    """Return the ONNX file for `nanodet.json` and `nanodet.bin`."""
    data: bytes = build(*tfjs.load(model, weights)).SerializeToString(deterministic=True)
    return data


def build(nodes: Sequence[tfjs.Node], constants: Mapping[str, NDArray[Any]]) -> onnx.ModelProto:
    """Return the checked model for the graph's nodes and constants.

    Raises:
        ValueError: The graph is another one.
    """
    graph = _Graph(constants)
    for node in nodes:
        graph.take(node)
    if [head.side_px for head in graph.heads] != [SIDE_PX // stride for stride in STRIDES]:
        raise ValueError(f"expected a head for each stride of {STRIDES}, got {graph.heads}")
    return graph.model()


@dataclass(frozen=True)
class _Map:
    """A square feature map of the published graph, and what it is here.

    Attributes:
        name: The tensor here, channels first always.
        channels: How many it has.
        side_px: Its side, without `pad_px`.
        last: Whether the published graph has the channels last at this point.
        pad_px: Border on each side that is still to be added.
    """

    name: str
    channels: int
    side_px: int
    last: bool = False
    pad_px: int = 0


@dataclass
class _Graph:
    constants: Mapping[str, NDArray[Any]]
    maps: dict[str, _Map] = field(default_factory=dict)
    heads: list[_Map] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: dict[str, TensorProto] = field(default_factory=dict)

    def take(self, node: tfjs.Node) -> None:  # noqa: PLR0912 - one match over all kinds
        """Append what stands for one node; what follows the heads is left out."""
        sources = [self.maps[name] for name in node.inputs if name in self.maps]
        known = [self.constants[name] for name in node.inputs if name in self.constants]
        match node.kind:
            case "Placeholder":
                self.maps[node.name] = _Map("images", 3, SIDE_PX)
            case "SplitV":
                self.heads.append(sources[0])
                self.heads.sort(key=lambda head: -head.side_px)
            case _ if not sources:
                pass  # constants, or behind a head
            case "Transpose":
                self.maps[node.name] = _transposed(sources[0], known[0].tolist())
            case "Pad" | "PadV2":
                self.maps[node.name] = _padded(sources[0], known[0])
            case "Conv2D":
                self.maps[node.name] = self._convolution(node, sources[0], known[0])
            case "MaxPool":
                self.maps[node.name] = self._pool(node, sources[0])
            case "Add" if known:
                self._bias(sources[0], known[0])
                self.maps[node.name] = sources[0]
            case "Add":
                name = self._node("Add", [each.name for each in sources])
                self.maps[node.name] = replace(sources[0], name=name)
            case "LeakyRelu":
                slope = float(np.float32(node.attributes["alpha"]["f"]))
                name = self._node("LeakyRelu", [sources[0].name], alpha=slope)
                self.maps[node.name] = replace(sources[0], name=name)
            case "ConcatV2":
                name = self._node("Concat", [each.name for each in sources], axis=1)
                channels = sum(each.channels for each in sources)
                self.maps[node.name] = replace(sources[0], name=name, channels=channels)
            case "ResizeBilinear":
                self.maps[node.name] = self._resize(node, sources[0], known[0])
            case _:
                raise ValueError(f"{node.name}: {node.kind} has no place in this graph")

    def _convolution(self, node: tfjs.Node, source: _Map, kernel: NDArray[Any]) -> _Map:
        size, stride = kernel.shape[0], node.numbers("strides")[1]
        if not source.last or node.text("padding") != "VALID" or kernel.shape[2] != source.channels:
            raise ValueError(f"{node.name}: not the expected convolution: {source}")
        weight = self._constant(f"{node.name}/weight", kernel.transpose(3, 2, 0, 1))
        name = self._node(
            "Conv",
            [source.name, weight],
            kernel_shape=[size, size],
            strides=[stride, stride],
            pads=[source.pad_px] * 4,
        )
        side = (source.side_px + 2 * source.pad_px - size) // stride + 1
        return _Map(name, kernel.shape[3], side, last=True)

    def _bias(self, source: _Map, bias: NDArray[Any]) -> None:
        """Give the convolution that made a map its bias."""
        made = next(node for node in self.nodes if node.output[0] == source.name)
        if made.op_type != "Conv" or len(made.input) != 2 or bias.shape != (source.channels,):
            raise ValueError(f"{source.name}: not a convolution that lacks its bias")
        made.input.append(self._constant(f"{source.name}/bias", bias))

    def _pool(self, node: tfjs.Node, source: _Map) -> _Map:
        # Padding of a maximum counts for nothing in ONNX; that of the graph is no larger.
        size, stride = node.numbers("ksize")[1], node.numbers("strides")[1]
        name = self._node(
            "MaxPool",
            [source.name],
            kernel_shape=[size, size],
            strides=[stride, stride],
            pads=[source.pad_px] * 4,
        )
        side = (source.side_px + 2 * source.pad_px - size) // stride + 1
        return replace(source, name=name, side_px=side, pad_px=0)

    def _resize(self, node: tfjs.Node, source: _Map, size: NDArray[Any]) -> _Map:
        if node.flag("align_corners") or not node.flag("half_pixel_centers"):
            raise ValueError(f"{node.name}: not the expected resize")
        side = int(size[0])
        ratio = side / source.side_px
        scales = np.array([1, 1, ratio, ratio], np.float32)
        name = self._node(
            "Resize",
            [source.name, "", self._constant(f"scales_{ratio:g}", scales)],
            mode="linear",
            coordinate_transformation_mode="half_pixel",
        )
        return replace(source, name=name, side_px=side)

    def model(self) -> onnx.ModelProto:
        """Return the checked model."""
        boxes, scores = zip(*map(self._head, self.heads), strict=True)
        corners = self._node("Concat", list(boxes), axis=2)
        # Centre and extent of the corners: [cx, cy, w, h] = matrix @ [x1, y1, x2, y2].
        matrix = [[0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5], [-1, 0, 1, 0], [0, -1, 0, 1]]
        extent = self._node(
            "MatMul", [self._constant("extent", np.array([matrix], np.float32)), corners]
        )
        parts = [extent, self._node("Concat", list(scores), axis=2)]
        self.nodes.append(helper.make_node("Concat", parts, ["output0"], "output", axis=1))
        places = sum(head.side_px**2 for head in self.heads)
        graph = helper.make_graph(
            self.nodes,
            "nanodet_g",
            [_tensor("images", 3, SIDE_PX, SIDE_PX)],
            [_tensor("output0", 4 + CLASSES, places)],
            list(self.tensors.values()),
        )
        opsets = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="gepipe")
        model.ir_version = _IR_VERSION
        onnx.checker.check_model(model, full_check=True)
        return model

    def _head(self, head: _Map) -> tuple[str, str]:
        """Append the end of a head; return its boxes as corners, and its scores."""
        side, stride = head.side_px, SIDE_PX // head.side_px
        places, channels = side * side, CLASSES + 4 * _BINS
        if head.channels != channels:
            raise ValueError(f"a head of {channels} channels was expected, got {head}")
        flat = self._reshape(head.name, [0, channels, places])
        parts = [f"scores_{stride}", f"bins_{stride}"]
        sizes = self._constant("parts", np.array([CLASSES, 4 * _BINS], np.int64))
        self.nodes.append(
            helper.make_node("Split", [flat, sizes], parts, f"split_{stride}", axis=1)
        )
        bins = self._reshape(parts[1], [0, 4, _BINS, places])
        shares = self._node("Softmax", [bins], axis=2)
        reach = (np.arange(_BINS) * stride).reshape(1, 1, _BINS, 1).astype(np.float32)
        weighed = self._node("Mul", [shares, self._constant(f"reach_{stride}", reach)])
        axis = self._constant("axis", np.array([2], np.int64))
        distances = self._node("ReduceSum", [weighed, axis], keepdims=0)
        rows, columns = np.divmod(np.arange(places), side)
        centres = (np.stack([columns, rows, columns, rows])[None] + 0.5) * stride
        sign = self._constant("sign", np.array([-1, -1, 1, 1], np.float32).reshape(1, 4, 1))
        outward = self._node("Mul", [distances, sign])
        at = self._constant(f"centres_{stride}", centres.astype(np.float32))
        return self._node("Add", [at, outward]), self._node("Sigmoid", [parts[0]])

    def _reshape(self, name: str, shape: list[int]) -> str:
        label = "shape_" + "_".join(map(str, shape))
        return self._node("Reshape", [name, self._constant(label, np.array(shape, np.int64))])

    def _constant(self, name: str, value: NDArray[Any]) -> str:
        kind = TensorProto.INT64 if value.dtype == np.int64 else TensorProto.FLOAT
        raw = value.astype("<i8" if kind == TensorProto.INT64 else "<f4").tobytes()
        self.tensors[name] = helper.make_tensor(name, kind, value.shape, raw, raw=True)
        return name

    def _node(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name


def _transposed(source: _Map, order: list[int]) -> _Map:
    if order != (_TO_FIRST if source.last else _TO_LAST):
        raise ValueError(f"{source.name}: not the expected transpose: {order}")
    return replace(source, last=not source.last)


def _padded(source: _Map, widths: NDArray[Any]) -> _Map:
    """Return the map with a border that the convolution or maximum behind it will add."""
    sides = widths[1:3] if source.last else widths[2:4]
    if len(set(sides.ravel().tolist())) != 1 or widths.sum() != sides.sum():
        raise ValueError(f"{source.name}: not the expected padding: {widths.tolist()}")
    return replace(source, pad_px=int(sides[0, 0]))


def _tensor(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *shape])
