"""An operator that splits a picture into tiles, for a model that is to see small things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from gepipe import Part, Splitter


@dataclass(frozen=True)
class Tiles(Splitter):
    """Split a picture into square tiles; the last of a row or column are filled up with black.

    Attributes:
        size: Side of a tile in pixels.
    """

    shorthand: ClassVar[str | None] = "size"
    size: int = 512

    def parts(self, value: Any, meta: dict[str, Any]) -> list[dict[str, Any]]:  # noqa: ARG002
        """Return where each tile begins: plain values, as they travel between processes."""
        return [
            {"x": x, "y": y}
            for y in range(0, meta["height"], self.size)
            for x in range(0, meta["width"], self.size)
        ]

    def part_size(self, facts: Any) -> tuple[int, int]:  # noqa: ARG002
        """Return height and width of the picture that a call makes."""
        return self.size, self.size

    def __call__(self, value: Part, meta: dict[str, Any]) -> Any:  # noqa: ARG002
        """Return a tile, (size, size, 3) uint8."""
        import numpy as np

        x, y = value.facts["x"], value.facts["y"]
        part = value.picture()[y : y + self.size, x : x + self.size]
        tile = np.zeros((self.size, self.size, 3), np.uint8)
        tile[: part.shape[0], : part.shape[1]] = part
        return tile
