"""The runtime around stages that do next to nothing, to see what it costs itself."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dill
from numpy.typing import NDArray

from gepipe.io.source import Entry
from gepipe.runtime.body import ModelInfo
from gepipe.runtime.feed import ListedFeed
from gepipe.runtime.memory import SlotLayout
from gepipe.runtime.options import Crew, RunOptions, SlotPlan, Start
from gepipe.runtime.statistics import Statistics
from gepipe.runtime.supervisor import Supervisor
from gepipe.tensors import TensorSpec


class Touch:
    """Writes one byte of the row."""

    def setup(self) -> None:
        pass

    def write(self, payload: bytes, rows: Mapping[str, NDArray[Any]]) -> bytes:
        rows["x"][0] = len(payload)
        return b""


@dataclass
class Pass:
    """Copies one byte of each row to the output."""

    nbytes: int
    in_flight = 1

    def setup(self) -> ModelInfo:
        return ModelInfo(
            (TensorSpec("x", "uint8", (self.nbytes,)),), (TensorSpec("y", "uint8", (1,)),)
        )

    def submit(
        self, inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]], count: int
    ) -> None:
        outputs["y"][:count, 0] = inputs["x"][:count, 0]

    def collect(self, pending: None) -> None:
        pass

    def close(self) -> None:
        pass


class Look:
    """Returns the output."""

    def setup(self) -> None:
        pass

    def read(self, rows: Mapping[str, NDArray[Any]], meta: bytes) -> bytes:  # noqa: ARG002
        return rows["y"].tobytes()


class Bare:
    """The runtime with stages that do next to nothing, one worker each."""

    def __init__(self, nbytes: int, batch: int) -> None:
        layouts = [
            SlotLayout.of(spec, batch)
            for spec in (Pass(nbytes).setup().inputs, Pass(nbytes).setup().outputs)
        ]
        crews = {
            role: Crew(role, [dill.dumps(body)])
            for role, body in (("pre", Touch()), ("infer", Pass(nbytes)), ("post", Look()))
        }
        plan = SlotPlan(layouts[0], layouts[1], depth=2)
        self._supervisor = Supervisor(crews, lambda _: plan, RunOptions())  # type: ignore[arg-type]

    def run(self, items: int) -> tuple[Statistics, float]:
        """Pass items through; return the statistics and the CPU seconds of this thread."""
        entries = [Entry(f"item-{number:06}", b"payload") for number in range(items)]
        emitted = 0

        def start(_: int) -> Start:
            return Start(ListedFeed(iter(entries), items))

        def emit(outcomes: Sequence[Any]) -> None:
            nonlocal emitted
            emitted += len(outcomes)

        begin = time.thread_time()
        statistics = self._supervisor.run(start, emit)
        spent = time.thread_time() - begin
        assert emitted == statistics.done == items
        return statistics, spent

    def close(self) -> None:
        self._supervisor.close()
