"""Emulated NPUs for the tests of the engine: strict, a fresh one each, checked afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gepipe.emulator import Mode, Profile
from gepipe.emulator.installation import create, machine_of
from gepipe.emulator.om import OmTensor, write_om
from gepipe.emulator.profile import parse_profile
from gepipe.emulator.surface import publish
from gepipe.engines.engine import EngineOptions
from gepipe.engines.ge import library
from gepipe.engines.ge.engine import GeEngine
from tests.support import onnx_model


class Npu:
    """An emulated machine in the place of `acl`."""

    def __init__(self, machine: Any, tmp_path: Path) -> None:
        self.machine = machine
        self.folder = tmp_path
        self.engines: list[GeEngine] = []
        #: Whether the test means to leave things behind.
        self.may_leak = False

    def open(self, model: Path, **options: Any) -> GeEngine:
        engine = GeEngine.open(model, EngineOptions(**options))
        self.engines.append(engine)
        return engine

    def timed(
        self,
        name: str = "timed",
        row: Sequence[int] = (4,),
        out: Sequence[int] = (3,),
        batch: int = 4,
        **more: Any,
    ) -> Path:
        """Write a model that only takes time."""
        path = self.folder / f"{name}.om"
        first = -1 if more.get("gears") else batch
        write_om(
            path,
            None,
            inputs=[OmTensor("x", "float32", (first, *row))],
            outputs=[OmTensor("y", "float32", (first, *out))],
            **more,
        )
        return path


@pytest.fixture
def npu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Npu]]:
    """Make an emulated machine of a profile, as YAML has it, and check it after the test."""
    made: list[Npu] = []
    monkeypatch.setenv("GEPIPE_ACL", "emulator")

    def make(mode: Mode = Mode.STRICT, **profile: Any) -> Npu:
        assert not made
        parsed = parse_profile(profile) if profile else Profile()
        parsed = replace(parsed, name=f"test-{id(made)}")
        module = create(parsed, mode, quiet=True)
        publish(module)
        made.append(Npu(machine_of(module), tmp_path))
        return made[0]

    yield make
    try:
        for each in made:
            for engine in each.engines:
                engine.close()
            report = each.machine.report
            assert not report.breaks
            assert each.may_leak or not each.machine.leaks()
    finally:
        for each in made:
            each.machine.close()
        for name in [name for name in sys.modules if name == "acl" or name.startswith("acl.")]:
            del sys.modules[name]
        library._open = None


def run(engine: GeEngine, count: int, capacity: int = 0, **inputs: Any) -> Mapping[str, Any]:
    """Execute and return the outputs; rows beyond `count` are filled with a mark first."""
    outputs = outputs_for(engine, capacity or count)
    engine.collect(engine.submit(inputs, outputs, count))
    return outputs


def outputs_for(engine: GeEngine, capacity: int) -> dict[str, Any]:
    return {
        spec.name: np.full((capacity, *spec.shape[1:]), 7, spec.dtype) for spec in engine.outputs
    }


def ramp(rows: int, *row: int, dtype: str = "float32") -> Any:
    count = rows * int(np.prod(row))
    return (np.arange(count) % 1001).astype(dtype).reshape(rows, *row)


def affine(path: Path, shape: Sequence[Any]) -> bytes:
    """Return the graph y = 2 x + 1."""
    return onnx_model(
        path,
        [("Mul", ["x", "two"], ["t"], {}), ("Add", ["t", "one"], ["y"], {})],
        {"x": ("float32", list(shape))},
        {"y": ("float32", list(shape))},
        {"two": np.float32(2), "one": np.float32(1)},
    ).read_bytes()


def pooled(path: Path, shape: Sequence[Any]) -> bytes:
    """Return a graph with a convolution, whose output is as large as the image, and its mean."""
    weights = np.random.default_rng(1).standard_normal((2, 3, 3, 3)).astype("float32")
    return onnx_model(
        path,
        [
            ("Conv", ["x", "w"], ["map"], {"pads": [1, 1, 1, 1]}),
            ("GlobalAveragePool", ["map"], ["mean"], {}),
        ],
        {"x": ("float32", list(shape))},
        {"map": ("float32", [shape[0], 2, *shape[2:]]), "mean": ("float32", [shape[0], 2, 1, 1])},
        {"w": weights},
    ).read_bytes()


def reference(graph: bytes, **inputs: Any) -> dict[str, Any]:
    """Return what ONNX Runtime makes of inputs."""
    import onnxruntime

    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))
