"""Reads TensorFlow.js graph models: the nodes of `model.json`, and the weights beside it.

Only what frozen inference graphs hold is read; nothing is executed, and no TensorFlow is needed.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DTYPES = ("float32", "float16", "int32", "uint8", "uint16")


@dataclass(frozen=True)
class Node:
    """One operation of the graph.

    Attributes:
        kind: What it does, such as `Conv2D`.
        name: What its result is called.
        inputs: Names of what it works on.
        attributes: As the file spells them, see the methods.
    """

    kind: str
    name: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    def text(self, name: str) -> str:
        """Return an attribute that is text."""
        return base64.b64decode(self.attributes[name]["s"]).decode()

    def numbers(self, name: str) -> list[int]:
        """Return an attribute that is a list of whole numbers."""
        return [int(number) for number in self.attributes[name]["list"]["i"]]

    def flag(self, name: str) -> bool:
        """Return an attribute that is true or false; absent ones are false."""
        return bool(self.attributes.get(name, {}).get("b", False))


def load(model: bytes, weights: bytes) -> tuple[list[Node], dict[str, NDArray[Any]]]:
    """Return the nodes in their order, and the constants by name.

    Args:
        model: Content of `model.json`.
        weights: Content of its one file of weights. Quantised ones are brought back.

    Raises:
        ValueError: The two are not such a model.
    """
    document = json.loads(model)
    constants: dict[str, NDArray[Any]] = {}
    position = 0
    for group in document["weightsManifest"]:
        for entry in group["weights"]:
            constants[entry["name"]], position = _weight(entry, weights, position)
    if position != len(weights):
        raise ValueError(f"the model uses {position} bytes of {len(weights)} bytes of weights")
    nodes = [
        Node(node["op"], node["name"], tuple(node.get("input", ())), node.get("attr", {}))
        for node in document["modelTopology"]["node"]
    ]
    return nodes, constants


def _weight(entry: Any, weights: bytes, position: int) -> tuple[NDArray[Any], int]:
    """Return one constant and where the next one begins."""
    packed = entry.get("quantization", {})
    stored = packed.get("dtype", entry["dtype"])
    if not {stored, entry["dtype"]} <= set(_DTYPES):
        raise ValueError(f"{entry['name']}: weights of type {stored} are not known")
    count = math.prod(entry["shape"])
    kind = np.dtype(stored).newbyteorder("<")
    end = position + count * kind.itemsize
    if end > len(weights):
        raise ValueError(f"{entry['name']}: the weights end at byte {len(weights)}, before {end}")
    values = np.frombuffer(weights, kind, count, position).astype(entry["dtype"])
    if "scale" in packed:
        values = values * np.float32(packed["scale"]) + np.float32(packed["min"])
    return values.reshape(entry["shape"]), end
