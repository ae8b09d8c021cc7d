"""An engine that needs no model: the mean colour of each image, by NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gepipe import TensorSpec


class MeanColor:
    """Takes `image`, (batch, side, side, 3) uint8, and gives `mean`, (batch, 3) float32."""

    on_cpu = True  # it shares the cores with the workers
    in_flight = 1  # batches that may be submitted before the first is collected
    gears = ()  # batch sizes it takes; empty means any

    def __init__(self, side: int) -> None:
        self.inputs = (TensorSpec("image", "uint8", (-1, side, side, 3)),)
        self.outputs = (TensorSpec("mean", "float32", (-1, 3)),)
        self.notes = (f"mean colour of {side}x{side} images",)  # shown once, at the start

    @classmethod
    def open(cls, model: Path | None, options: Any) -> MeanColor:  # noqa: ARG003
        """Open the model on `options.device`; here there is none."""
        return cls(options.extra.get("side", 64))

    def submit(self, inputs: dict[str, Any], outputs: dict[str, Any], count: int) -> None:
        """Execute the first `count` rows, or start to; both sides are views into slots."""
        inputs["image"][:count].mean(axis=(1, 2), out=outputs["mean"][:count])

    def collect(self, pending: None) -> None:
        """Wait until what `submit` returned is done; here it is done already."""

    def close(self) -> None:
        """Release the device."""
