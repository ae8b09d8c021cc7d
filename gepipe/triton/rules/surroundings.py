"""What a rule may look at besides the model in hand, and which rules there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gepipe.triton.models import Model
from gepipe.triton.problem import Describe, Finding, ModelFile


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

    def of_model(self, model: Model) -> Iterator[Finding]:
        """Yield what is wrong with a model by itself."""
        from gepipe.triton.rules import (
            batching,
            cards,
            extras,
            instances,
            npu_ge,
            parameters,
            platform,
            python,
            tensors,
            versions,
        )

        if model.unreadable or model.document.faults:
            return
        for rule in (
            platform,
            versions,
            instances,
            batching,
            tensors,
            extras,
            python,
            cards,
            npu_ge,
            parameters,
        ):
            yield from rule.check(model, self)

    def of_ensemble(self, model: Model) -> Iterator[Finding]:
        """Yield what is wrong with an ensemble and its steps."""
        from gepipe.triton.rules import ensembles

        if model.backend == "ensemble" and not model.document.faults:
            yield from ensembles.check(model, self)

    def opened(self, path: Path) -> ModelFile | None:
        """Return what a model file says of itself; None where that cannot be known."""
        return self.describe(path) if self.describe else None

    def has_gpu(self) -> bool:
        """Whether this machine has a GPU that the server could use."""
        return Path("/dev/nvidiactl").exists()
