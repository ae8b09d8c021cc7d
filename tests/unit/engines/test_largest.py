"""How large outputs become: by the largest input, or by strips where that would be dear."""

from __future__ import annotations

import numpy as np
import pytest

from gepipe.engines.engine import EngineOptions
from gepipe.engines.largest import largest_rows
from gepipe.engines.onnx import OnnxEngine
from gepipe.errors import BackendError
from gepipe.tensors import TensorSpec, Variants
from tests.support import onnx_model

PIXELS = TensorSpec("x", "float32", (3, -1, -1))
LARGE = Variants((TensorSpec("", "float32", (3, 1920, 1920)),), step=32)


class Network:
    """Shapes of a network's outputs, and what it was executed for."""

    def __init__(self, *outputs, takes=lambda height, width: True) -> None:  # noqa: ARG005
        self.outputs, self.takes = outputs, takes
        self.seen = []

    def __call__(self, shapes):
        ((_, height, width),) = shapes
        self.seen.append((height, width))
        if not self.takes(height, width):
            raise BackendError("it does not take that")
        return tuple(output(height, width) for output in self.outputs)


def test_strips_tell_of_maps_sums_and_what_is_always_alike() -> None:
    def anchors(height, width):
        return sum(height // s * (width // s) for s in (8, 16, 32)), 85

    network = Network(
        lambda h, w: (1, h, w), lambda h, w: (2, h // 32, w // 4), anchors, lambda _h, _w: (7,)
    )

    (rows,) = largest_rows([PIXELS], LARGE, network)

    assert rows == ((1, 1920, 1920), (2, 60, 480), (75_600, 85), (7,))
    assert max(h * w for h, w in network.seen) == 32 * 1920


@pytest.mark.parametrize(
    "network",
    [
        Network(lambda h, w: (h * w + h + w,)),  # no product of the two
        Network(lambda h, w: (1, h, w), takes=lambda h, w: h == w),
        Network(lambda h, w: (1, h, w), takes=lambda h, w: min(h, w) >= 64),
    ],
)
def test_a_network_of_which_strips_do_not_tell_is_executed_at_the_largest(network) -> None:
    (rows,) = largest_rows([PIXELS], LARGE, network)

    assert network.seen[-1] == (1920, 1920)
    assert rows == tuple(output(1920, 1920) for output in network.outputs)


@pytest.mark.parametrize(
    "variants",
    [
        Variants((TensorSpec("", "float32", (3, 640, 640)),)),
        Variants((TensorSpec("", "float32", (3, 1920, 1920)),), complete=True),
    ],
)
def test_a_small_largest_and_one_of_a_list_are_executed_as_they_are(variants) -> None:
    network = Network(lambda h, w: (1, h, w))

    largest_rows([PIXELS], variants, network)

    assert network.seen == [variants.specs[0].shape[1:]]


def test_what_cannot_be_executed_at_the_largest_is_told_at_the_start() -> None:
    with pytest.raises(BackendError):
        largest_rows([PIXELS], LARGE, Network(lambda h, w: (h, w), takes=lambda _h, _w: False))


def test_a_real_network_is_not_executed_at_its_largest(tmp_path) -> None:
    path = onnx_model(
        tmp_path / "m.onnx",
        [("MaxPool", ["x"], ["y"], {"kernel_shape": [2, 2], "strides": [2, 2]})],
        {"x": ("float32", ["n", 3, "h", "w"])},
        {"y": ("float32", ["n", 3, "h2", "w2"])},
    )
    made = Variants((TensorSpec("", "float32", (3, 20_000, 20_000)),), step=2)  # 5 GB

    engine = OnnxEngine.open(
        path, EngineOptions(made=TensorSpec("", "float32", (3, -1, -1)), variants=made)
    )

    assert engine.largest == (3 * 10_000 * 10_000 * np.dtype("float32").itemsize,)
