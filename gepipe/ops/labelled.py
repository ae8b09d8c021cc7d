"""What operators have in common that name classes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from gepipe.ops.op import Op

if TYPE_CHECKING:
    from pathlib import Path

    from gepipe.ops.scores import Labels


class Labelled(Op):
    """An operator with the parameter `labels`: a file with the classes' names, or none."""

    if TYPE_CHECKING:  # each declares it in its own place, which is its place in the documentation
        labels: Path | None

    def setup(self) -> None:
        """Read the labels.

        Raises:
            ConfigError: The file cannot be read or understood.
        """
        _ = self._labels

    @cached_property
    def _labels(self) -> Labels | None:
        from gepipe.ops.scores import Labels

        return None if self.labels is None else Labels.read(self.labels)
