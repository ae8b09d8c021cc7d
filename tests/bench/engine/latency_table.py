"""An accelerator made of a latency table: it sleeps, and its outputs follow from its inputs.

Registered as the engine `latency_table` by the `.dist-info` folder beside this file. Whoever puts
this folder on PYTHONPATH (or on `sys.path`, before the first plugin is looked up) can write

    backend: {latency_table: {table: {8: 20ms, 32: 61.5ms}, inputs: {x: [float32, 3, 224, 224]}}}

The device executes one batch at a time, in order; with `in_flight: 2` the next one may be handed
over while it does.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gepipe.engines.engine import EngineOptions
from gepipe.errors import ModelLoadError
from gepipe.tensors import DYNAMIC, TensorSpec

_INPUTS = {"x": ["float32", 3, 224, 224]}
_OUTPUTS = {"scores": ["float32", 1000]}
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_SAMPLE_BYTES = 512
_STRIDE = 1_664_525  # odd, so that all values of a row differ modulo 2**16


class LatencyTable:
    """See `gepipe.engines.engine.Engine` for the contract.

    Options, all but `table` optional:
        table: Rows to latency. A batch takes the time of the smallest entry that holds it; larger
            ones take several of the largest.
        inputs: Name to dtype and extents of a row.
        outputs: Likewise.
        gears: Whether only the batch sizes of the table may be executed.
        in_flight: Batches that may be handed over before the first is collected.
        recorded: An .npy file of rows of the only output, (rows, …): each item gets one of them,
            chosen by its inputs. For stages behind that need answers of a real model.
    """

    on_cpu = False

    def __init__(self, options: EngineOptions) -> None:
        extra = dict(options.extra)
        table = extra.pop("table", None)
        if not table:
            raise ModelLoadError("latency_table: expected the option `table: {32: 61.5ms}`")
        self._table = {int(rows): _seconds(latency) for rows, latency in sorted(table.items())}
        self.inputs = _specs(extra.pop("inputs", _INPUTS))
        self.outputs = _specs(extra.pop("outputs", _OUTPUTS))
        self.gears = tuple(self._table) if extra.pop("gears", False) else ()
        self.in_flight = int(extra.pop("in_flight", 1))
        recorded = extra.pop("recorded", None)
        self._recorded = None if recorded is None else np.load(recorded)
        self.notes = (f"latency table {self._table}, device {options.device}",)
        if extra:
            raise ModelLoadError(f"latency_table: unknown options {sorted(extra)}")
        self._free_at = 0.0

    @classmethod
    def open(cls, model: Path | None, options: EngineOptions) -> LatencyTable:  # noqa: ARG003
        return cls(options)

    def latency_s(self, count: int) -> float:
        rows = [*self._table]
        whole, rest = divmod(count, rows[-1])
        fitting = next(size for size in rows if size >= rest)
        return whole * self._table[rows[-1]] + (self._table[fitting] if rest else 0.0)

    def submit(
        self,
        inputs: Mapping[str, NDArray[Any]],
        outputs: Mapping[str, NDArray[Any]],
        count: int,
    ) -> float:
        start = max(time.monotonic(), self._free_at)
        self._free_at = start + self.latency_s(count)
        for row in range(count):  # takes part of the latency, not time on top of it
            key = _digest(inputs, row)
            for output in outputs.values():
                if self._recorded is None:
                    output[row] = _scores(key, output[row].size).reshape(output[row].shape)
                else:
                    output[row] = self._recorded[key % len(self._recorded)]
        return self._free_at

    def collect(self, pending: float) -> None:
        left = pending - time.monotonic()
        if left > 0:
            time.sleep(left)  # noqa: TID251 - this is the device at work

    def close(self) -> None:
        pass


def expected(inputs: Mapping[str, NDArray[Any]], size: int) -> NDArray[np.float32]:
    """Return the outputs, flat, of one row: `inputs` is name to the array of one item."""
    return _scores(_digest({name: array[None] for name, array in inputs.items()}, 0), size)


def _digest(inputs: Mapping[str, NDArray[Any]], row: int) -> int:
    key = 0
    for array in inputs.values():
        content = np.ravel(array[row]).view(np.uint8)
        key = zlib.crc32(content[:: max(1, content.size // _SAMPLE_BYTES)].tobytes(), key)
    return key


def _scores(key: int, size: int) -> NDArray[np.float32]:
    values = (key + np.arange(size, dtype=np.int64) * _STRIDE) % 65536
    return values.astype(np.float32) / np.float32(65536)


def _specs(described: Mapping[str, Any]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name, dtype, (DYNAMIC, *shape)) for name, (dtype, *shape) in described.items()
    )


def _seconds(latency: float | str) -> float:
    if not isinstance(latency, str):
        return float(latency)
    number, unit = re.fullmatch(r"([\d.]+)\s*(us|ms|s)", latency.strip()).groups()
    return float(number) * _UNITS[unit]
