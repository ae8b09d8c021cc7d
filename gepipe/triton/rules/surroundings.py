"""What a rule may look at besides the model in hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gepipe.triton.models import Model
from gepipe.triton.problem import Describe, ModelFile


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The repository, the server's backends, and what can be known of model files.

    Attributes:
        models: All models by name.
        backends: The server's folder of backends; None where it is not known.
        describe: Opens model files.
    """

    models: dict[str, Model]
    backends: Path | None = None
    describe: Describe | None = None

    def opened(self, path: Path) -> ModelFile | None:
        """Return what a model file says of itself; None where that cannot be known."""
        return self.describe(path) if self.describe else None

    def has_gpu(self) -> bool:
        """Whether this machine has a GPU that the server could use."""
        return Path("/dev/nvidiactl").exists()
