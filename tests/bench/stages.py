"""Stage functions of the benchmarks' pipelines."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

_ROW = np.zeros(64, np.uint8)


def nothing(value: Any) -> np.ndarray:  # noqa: ARG001
    return _ROW


def slow_row(value: Any, seconds: float) -> np.ndarray:  # noqa: ARG001
    time.sleep(seconds)  # noqa: TID251 - a stage that takes exactly that long
    return _ROW


def slow_record(outputs: Any, seconds: float) -> list[float]:
    time.sleep(seconds)  # noqa: TID251 - a stage that takes exactly that long
    return outputs["y"].tolist()


def places(outputs: Any, count: int) -> dict[str, Any]:  # noqa: ARG001
    return {"places": [{"box": [0, 0, 8, 8]}] * count}


def record(outputs: Any) -> dict[str, float]:
    return {"y": float(outputs["y"][0])}
