"""What the engine itself costs the host for a batch: everything but copies, ACL and the device.

Measured twice on a model with rows of 16 bytes: with the emulator behind `acl`, whose calls are
Python, and with functions behind the same gate that do nothing.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import harness
from harness import Figure

NAME = "ge_dispatch"
BATCHES = 4000
_WARM = 300


class Nothing(ModuleType):
    """An `acl` whose hot functions return at once."""

    def __init__(self, real: ModuleType) -> None:
        super().__init__("acl")
        for part in ("rt", "mdl"):
            owner = ModuleType(f"acl.{part}")
            for name, function in vars(getattr(real, part)).items():
                setattr(owner, name, function)
            setattr(self, part, owner)
        for name, function in vars(real).items():
            if callable(function) and not hasattr(self, name):
                setattr(self, name, function)
        for name in (
            "set_context",
            "memcpy_async",
            "record_event",
            "stream_wait_event",
            "destroy_event",
            "synchronize_stream",
        ):
            setattr(self.rt, name, _zero)
        self.mdl.execute_async = self.mdl.set_dynamic_batch_size = _zero
        self.rt.create_event = _one


def _zero(*_: Any) -> int:
    return 0


def _one(*_: Any) -> tuple[int, int]:
    return 1, 0


def trial(variant: str, batches: int = BATCHES) -> dict[str, float]:
    """Measure the CPU time of the calling thread per batch."""
    import numpy as np

    from gepipe.emulator.om import Gears, OmTensor, write_om
    from gepipe.engines.engine import EngineOptions
    from gepipe.engines.ge.engine import GeEngine
    from gepipe.engines.ge.runtime import Acl

    os.environ["GEPIPE_ACL"] = "emulator"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.om"
        write_om(
            path,
            None,
            inputs=[OmTensor("x", "float32", (-1, 4))],
            outputs=[OmTensor("y", "float32", (-1, 4))],
            gears=Gears("batch", ((1,), (8,))),
        )
        engine = GeEngine.open(path, EngineOptions())
    rows = [{"x": np.ones((8, 4), np.float32)} for _ in range(3)]
    outputs = [{"y": np.ones((8, 4), np.float32)} for _ in range(3)]

    def go(count: int) -> None:
        pending: list[Any] = []
        for number in range(count):
            pending.append(engine.submit(rows[number % 3], outputs[number % 3], 8))
            if len(pending) == engine.in_flight:
                engine.collect(pending.pop(0))
        engine.collect(pending.pop())

    session, execution = engine._session, engine._execution
    real = session.acl
    if variant == "engine":
        go(_WARM)
        session.acl = execution._acl = Acl(Nothing(real.module))
    go(_WARM)
    begin = time.thread_time()
    go(batches)
    spent = time.thread_time() - begin
    session.acl = execution._acl = real
    engine.close()
    return {"us": 1e6 * spent / batches}


def measure(rounds: int, batches: int = BATCHES) -> list[Figure]:
    """Measure both."""
    results = harness.interleave(NAME, ["engine", "emulator"], rounds, batches=batches)
    figures = []
    for variant, what, goal in (
        ("engine", "host CPU of the engine for a batch, µs, without copies and ACL", 120.0),
        ("emulator", "… with the emulator's own calls", None),
    ):
        middle = harness.medians(results[variant])
        details = {**middle, "lowest_highest": harness.spread(results[variant], "us")}
        figures.append(Figure(NAME, what, middle["us"], goal, False, details))
    return figures
