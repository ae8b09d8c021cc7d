"""Stages of pipelines over the videos of `tests.clips`, for workers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import pause, wait_until

#: The first of the last frames of the third video.
LAST = 112


def shown(image: Any) -> Any:
    """Tell the number that a frame shows to the model, four times."""
    from tests.clips import number_in

    return np.full(4, number_in(image), np.float32)


def found(
    outputs: Any,
    slow: float = 0.01,
    gate: str = "",
    bad: tuple[int, ...] = (),
    fatal: int = -1,
) -> dict[str, Any]:
    """Find an object that walks to the right, as a detector would.

    The last frames wait for the file `gate`, so that a test can end what runs before its end. The
    frames `bad` fail, and the frame `fatal` ends the worker.
    """
    number = round((float(outputs["y"][0]) - 1) / 2)
    pause(slow)
    if gate and number >= LAST:
        wait_until(Path(gate).exists)
    if number == fatal:
        os._exit(3)
    if number in bad:
        raise ValueError(f"frame {number} is bad")
    left = 4 + number % 60
    entry = {"class": number % 2, "label": "ab"[number % 2], "score": 0.9}
    return {"detections": [{**entry, "box": [left, 70, left + 24, 94]}]}
