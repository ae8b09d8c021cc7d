"""An operator that darkens an image towards its corners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from gepipe import Op, TensorSpec


@dataclass(frozen=True)
class Vignette(Op):
    """Darken an image towards its corners.

    Attributes:
        strength: 0 leaves the image as it is, 1 makes its corners black.
    """

    shorthand: ClassVar[str | None] = "strength"  # so that `vignette: 0.4` works
    strength: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.strength <= 1:
            raise ValueError(f"strength is {self.strength}; expected 0 to 1")

    def __call__(self, value: Any, meta: dict[str, Any]) -> Any:  # noqa: ARG002
        """Return the darkened image, in the shape and type of `value`."""
        import numpy as np

        y = np.linspace(-1, 1, value.shape[0])[:, None, None]
        x = np.linspace(-1, 1, value.shape[1])[None, :, None]
        return (value * (1 - self.strength * (x * x + y * y) / 2)).astype(value.dtype)

    def output_spec(self, spec: TensorSpec | None) -> TensorSpec | None:
        """Return what comes in: neither shape nor type changes."""
        return spec
