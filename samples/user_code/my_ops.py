"""Functions for `python:` operators: one for pre, one for post."""

from __future__ import annotations

from typing import Any

import numpy as np

from gepipe import ItemError


def brighten(image: np.ndarray, gain: float = 1.0) -> np.ndarray:
    """Pre: take an image (height, width, 3) uint8 and return one."""
    if image.mean() < 1:
        raise ItemError("too_dark", "the picture is black; nothing to see")
    return np.clip(image * gain, 0, 255).astype(np.uint8)


def describe(outputs: dict[str, np.ndarray], meta: dict[str, Any]) -> dict[str, Any]:
    """Post: take the model's outputs for one item and return its record."""
    red, green, blue = outputs["mean"].tolist()
    return {
        "rgb": [round(red), round(green), round(blue)],
        "size": [meta["height"], meta["width"]],  # noted by decode_image
    }
