"""all-MiniLM-L6-v2: the published weights of a sentence encoder as an ONNX model.

Inputs `input_ids`, `attention_mask` and `token_type_ids`, int64 (batch, length). Output
`sentence_embedding`, float32 (batch, 384): the mean of the last hidden state over the tokens that
are no padding, of length 1. Batch and length are open, up to the 512 positions of the weights.

The bytes depend on the weights alone (opset and IR version are fixed, the arithmetic is exactly
rounded), so the finished file can be pinned by its SHA-256.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from . import safetensors

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT = "sentence_embedding"
# What the weights do not tell; layers and widths they do.
_HEADS = 12
_EPSILON = 1e-12
_MASKED = -1e4  # added to the scores of padding: its share of the attention becomes exactly 0
_OPSET, _IR_VERSION = 17, 8  # the first with LayerNormalization

State = Mapping[str, NDArray[Any]]


def convert(weights: bytes) -> bytes:
    """Return the ONNX file for a safetensors file with the published weights."""
    data: bytes = build(safetensors.load(weights)).SerializeToString(deterministic=True)
    return data


def build(state: State, *, heads: int = _HEADS) -> onnx.ModelProto:
    """Return the checked model for weights with the published names."""
    graph = _Graph(state)
    layers = sum(name.endswith(".attention.self.query.weight") for name in state)
    mask = graph.node("Cast", ["attention_mask"], to=TensorProto.FLOAT)
    x = graph.embedded()
    bias = graph.attention_bias(mask)
    for number in range(layers):
        x = graph.layer(x, bias, f"encoder.layer.{number}", heads)
    graph.pooled(x, mask)
    return graph.model()


@dataclass
class _Graph:
    state: State
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, TensorProto] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Values of a token."""
        return int(self.state["embeddings.word_embeddings.weight"].shape[1])

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """Add a constant, once; values are stored as float32 or int64."""
        if name not in self.constants:
            kind = TensorProto.INT64 if value.dtype.kind == "i" else TensorProto.FLOAT
            raw = np.ascontiguousarray(value, "<i8" if kind == TensorProto.INT64 else "<f4")
            self.constants[name] = helper.make_tensor(
                name, kind, value.shape, raw.tobytes(), raw=True
            )
        return name

    def weight(self, name: str) -> str:
        """Add weights under their own name."""
        return self.constant(name, self.state[name])

    def integers(self, *values: int) -> str:
        """Add a list of integers."""
        return self.constant(f"integers_{'_'.join(map(str, values))}", np.array(values, np.int64))

    def number(self, name: str, value: float) -> str:
        """Add a number."""
        return self.constant(name, np.array(value, np.float32))

    def node(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Append a node with one output; return its name."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def normalized(self, x: str, prefix: str) -> str:
        """Append a layer normalisation."""
        scale, bias = self.weight(f"{prefix}.weight"), self.weight(f"{prefix}.bias")
        return self.node("LayerNormalization", [x, scale, bias], axis=-1, epsilon=_EPSILON)

    def dense(self, x: str, prefix: str, scale: float = 1.0) -> str:
        """Append a fully connected layer, scaled."""
        factor = np.float32(scale)
        weight, bias = (self.state[f"{prefix}.{part}"] * factor for part in ("weight", "bias"))
        product = self.node("MatMul", [x, self.constant(f"{prefix}.weight", weight.T)])
        return self.node("Add", [product, self.constant(f"{prefix}.bias", bias)])

    def embedded(self) -> str:
        """Append the sum of the embeddings of words, types and positions."""
        word, kind, position = (
            self.weight(f"embeddings.{part}_embeddings.weight")
            for part in ("word", "token_type", "position")
        )
        words = self.node("Gather", [word, "input_ids"])
        kinds = self.node("Gather", [kind, "token_type_ids"])
        length = self.node("Gather", [self.node("Shape", ["input_ids"]), self.integers(1)])
        places = self.node("Slice", [position, self.integers(0), length, self.integers(0)])
        added = self.node("Add", [self.node("Add", [words, kinds]), places])
        return self.normalized(added, "embeddings.LayerNorm")

    def attention_bias(self, mask: str) -> str:
        """Append what is added to the scores of attention: 0 for tokens, much less for padding."""
        absent = self.node("Sub", [self.number("one", 1), mask])
        bias = self.node("Mul", [absent, self.number("masked", _MASKED)])
        return self.node("Unsqueeze", [bias, self.integers(1, 2)])

    def layer(self, x: str, bias: str, prefix: str, heads: int) -> str:
        """Append an encoder layer: attention, then a feed-forward network."""
        each = self.width // heads
        split, merge = self.integers(0, 0, heads, each), self.integers(0, 0, self.width)

        def projected(name: str, perm: list[int], scale: float = 1.0) -> str:
            dense = self.dense(x, f"{prefix}.attention.self.{name}", scale)
            return self.node("Transpose", [self.node("Reshape", [dense, split])], perm=perm)

        query = projected("query", [0, 2, 1, 3], each**-0.5)
        scores = self.node("MatMul", [query, projected("key", [0, 2, 3, 1])])
        shares = self.node("Softmax", [self.node("Add", [scores, bias])], axis=-1)
        context = self.node("MatMul", [shares, projected("value", [0, 2, 1, 3])])
        context = self.node("Transpose", [context], perm=[0, 2, 1, 3])
        context = self.node("Reshape", [context, merge])
        attended = self.dense(context, f"{prefix}.attention.output.dense")
        x = self.normalized(self.node("Add", [attended, x]), f"{prefix}.attention.output.LayerNorm")
        hidden = self.gelu(self.dense(x, f"{prefix}.intermediate.dense"))
        output = self.dense(hidden, f"{prefix}.output.dense")
        return self.normalized(self.node("Add", [output, x]), f"{prefix}.output.LayerNorm")

    def gelu(self, x: str) -> str:
        """Append the exact GELU: x / 2 · (1 + erf(x / √2))."""
        root = self.number("root_of_2", 2**0.5)
        erf = self.node("Erf", [self.node("Div", [x, root])])
        product = self.node("Mul", [x, self.node("Add", [erf, self.number("one", 1)])])
        return self.node("Mul", [product, self.number("half", 0.5)])

    def pooled(self, x: str, mask: str) -> None:
        """Append the mean over the tokens, scaled to length 1, as the output."""
        weights = self.node("Unsqueeze", [mask, self.integers(-1)])
        total = self.node(
            "ReduceSum", [self.node("Mul", [x, weights]), self.integers(1)], keepdims=0
        )
        count = self.node("ReduceSum", [weights, self.integers(1)], keepdims=0)
        mean = self.node("Div", [total, self.node("Max", [count, self.number("one", 1)])])
        self.nodes.append(
            helper.make_node("LpNormalization", [mean], [OUTPUT], "head", axis=1, p=2)
        )

    def model(self) -> onnx.ModelProto:
        """Return the checked model."""
        graph = helper.make_graph(
            self.nodes,
            "minilm",
            [helper.make_tensor_value_info(n, TensorProto.INT64, ["N", "L"]) for n in INPUTS],
            [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["N", self.width])],
            list(self.constants.values()),
        )
        opsets = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="gepipe")
        model.ir_version = _IR_VERSION
        onnx.checker.check_model(model, full_check=True)
        return model
