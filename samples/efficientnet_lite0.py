"""EfficientNet-Lite0: the published PyTorch weights as an ONNX model.

Input `input` float32 (batch, 3, 224, 224): RGB, `(value - 127) / 128`. Output `probs` float32
(batch, 1000), softmax over the ImageNet-1k classes. Batch normalisation is folded into the
convolutions, and TensorFlow's SAME padding is written out for the 224-pixel input.

The bytes depend on the weights alone (opset and IR version are fixed, the arithmetic is exactly
rounded), so the finished file can be pinned by its SHA-256.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from . import torch_state

SIDE_PX = 224
_EPSILON = 1e-3
_OPSET, _IR_VERSION = 13, 8  # what ATC and every supported ONNX Runtime read
# (blocks, stride of the first): what the weights do not tell; kernels and widths they do.
_STAGES = ((1, 1), (2, 2), (2, 2), (3, 2), (3, 1), (4, 2), (1, 1))

State = Mapping[str, NDArray[Any]]


def convert(weights: bytes) -> bytes:
    """Return the ONNX file for a legacy PyTorch state dict."""
    data: bytes = build(torch_state.load(weights)).SerializeToString(deterministic=True)
    return data


def build(state: State) -> onnx.ModelProto:
    """Return the checked model for a state dict with the names of the published weights."""
    graph = _Graph(state)
    graph.constant("zero", np.zeros((), np.float32))
    graph.constant("six", np.full((), 6, np.float32))
    x = graph.conv_norm(_Feature("input", SIDE_PX), "_conv_stem", "_bn0", stride=2)
    block = 0
    for count, first_stride in _STAGES:
        for i in range(count):
            x = graph.block(x, f"_blocks.{block}.", first_stride if i == 0 else 1, skip=i > 0)
            block += 1
    x = graph.conv_norm(x, "_conv_head", "_bn1")
    pooled = graph.node("Flatten", [graph.node("GlobalAveragePool", [x.name])], axis=1)
    weight, bias = (graph.constant(f"fc.{n}", state[f"_fc.{n}"]) for n in ("weight", "bias"))
    logits = graph.node("Gemm", [pooled, weight, bias], transB=1)
    graph.nodes.append(helper.make_node("Softmax", [logits], ["probs"], "head", axis=1))
    return graph.model(classes=len(state["_fc.bias"]))


@dataclass(frozen=True)
class _Feature:
    """A square feature map: the tensor's name and its side in pixels."""

    name: str
    side_px: int


@dataclass
class _Graph:
    state: State
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)

    def constant(self, name: str, value: NDArray[Any]) -> str:
        raw = np.asarray(value, "<f4").tobytes()
        tensor = helper.make_tensor(name, TensorProto.FLOAT, value.shape, raw, raw=True)
        self.constants.append(tensor)
        return name

    def node(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def conv_norm(
        self, x: _Feature, conv: str, norm: str, *, stride: int = 1, relu6: bool = True
    ) -> _Feature:
        """Append a convolution with its batch normalisation folded in."""
        weight, bias = _fold(self.state, conv, norm)
        kernel = weight.shape[2]
        side = -(-x.side_px // stride)
        padding = max((side - 1) * stride + kernel - x.side_px, 0)
        low, high = padding // 2, padding - padding // 2  # SAME puts the odd one at the end
        name = self.node(
            "Conv",
            [x.name, self.constant(f"{conv}.weight", weight), self.constant(f"{conv}.bias", bias)],
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[low, low, high, high],
            group=weight.shape[0] if conv.endswith("_depthwise_conv") else 1,
        )
        return _Feature(self.node("Clip", [name, "zero", "six"]) if relu6 else name, side)

    def block(self, x: _Feature, prefix: str, stride: int, *, skip: bool) -> _Feature:
        """Append an inverted residual block: widen (if it does), depthwise, project."""
        y = x
        if f"{prefix}_expand_conv.weight" in self.state:
            y = self.conv_norm(y, f"{prefix}_expand_conv", f"{prefix}_bn0")
        y = self.conv_norm(y, f"{prefix}_depthwise_conv", f"{prefix}_bn1", stride=stride)
        y = self.conv_norm(y, f"{prefix}_project_conv", f"{prefix}_bn2", relu6=False)
        return _Feature(self.node("Add", [y.name, x.name]), y.side_px) if skip else y

    def model(self, *, classes: int) -> onnx.ModelProto:
        shape = ["N", 3, SIDE_PX, SIDE_PX]
        graph = helper.make_graph(
            self.nodes,
            "efficientnet_lite0",
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("probs", TensorProto.FLOAT, ["N", classes])],
            self.constants,
        )
        opsets = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="gepipe")
        model.ir_version = _IR_VERSION
        onnx.checker.check_model(model, full_check=True)
        return model


def _fold(state: State, conv: str, norm: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return weight and bias of `conv` followed by `norm`, folded in double precision."""
    weight = state[f"{conv}.weight"].astype(np.float64)
    gamma, beta, mean, variance = (
        state[f"{norm}.{part}"].astype(np.float64)
        for part in ("weight", "bias", "running_mean", "running_var")
    )
    scale = gamma / np.sqrt(variance + _EPSILON)
    folded = weight * scale[:, None, None, None]
    return folded.astype(np.float32), (beta - mean * scale).astype(np.float32)
