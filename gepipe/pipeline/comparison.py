"""What is to be compared, and what a comparison found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gepipe.pipeline.differences import OutputDifference


@dataclass(frozen=True)
class CompareRequest:
    """What is compared, and how far apart it may be.

    Attributes:
        path: The pipeline file.
        overrides: Changes such as `preprocess.batch_size=16`.
        inputs: Paths in place of the YAML's source.
        limit: How many inputs.
        model_a: First model; the YAML's by default.
        model_b: Second model; the YAML's by default.
        backend_a: First engine; by default what runs the file: onnxruntime for ONNX.
        backend_b: Second engine; by default `ge`, what runs `model_b` if that is given, or the
            first engine where the batches are what differs.
        batch_a: First batch size; the YAML's by default.
        batch_b: Second batch size; the YAML's by default.
        tolerance: Largest difference, as a share of the largest value of an output.
        agreement: Smallest share of items whose final results agree.
    """

    path: str
    overrides: Sequence[str] = ()
    inputs: Sequence[str] = ()
    limit: int = 64
    model_a: Path | None = None
    model_b: Path | None = None
    backend_a: str | None = None
    backend_b: str | None = None
    batch_a: int | None = None
    batch_b: int | None = None
    tolerance: float = 0.01
    agreement: float = 0.98


@dataclass(frozen=True)
class Disagreement:
    """An item whose final results do not agree.

    Attributes:
        index: The item.
        source: Its text.
        first: One side's result.
        second: The other's.
    """

    index: int
    source: str
    first: Any
    second: Any


@dataclass
class Comparison:
    """What a comparison found.

    Attributes:
        request: What was asked for.
        sides: What ran on each side, in words.
        notes: What to know.
        items: Items that were compared.
        agreeing: Items whose final results agree.
        failed: Items that failed, by side: why the first did, and how many.
        outputs: Of each output how far it is apart.
        disagreements: The first items whose results do not agree.
    """

    request: CompareRequest
    sides: tuple[str, str]
    notes: tuple[str, ...] = ()
    items: int = 0
    agreeing: int = 0
    failed: dict[str, tuple[int, str]] = field(default_factory=dict)
    outputs: list[OutputDifference] = field(default_factory=list)
    disagreements: list[Disagreement] = field(default_factory=list)

    def problems(self) -> list[str]:
        """Return what is beyond the thresholds; nothing if all is within."""
        found = []
        for output in self.outputs:
            if output.scaled > self.request.tolerance:
                found.append(
                    f"output {output.name!r} differs by {output.scaled:.2g} of its largest value, "
                    f"tolerated are {self.request.tolerance:g}"
                )
            if output.torn:
                found.append(
                    f"output {output.name!r}: {output.torn} values are NaN or infinite on one side "
                    f"only ({output.nan_a} NaN and {output.nan_b} NaN)"
                )
        if self.agreeing < self.request.agreement * self.items:
            found.append(
                f"the results agree for {self.agreeing} of {self.items} items, wanted are "
                f"{self.request.agreement:.0%}"
            )
        counts = {side: count for side, (count, _) in self.failed.items()}
        if counts.get("a", 0) != counts.get("b", 0):
            found.append(
                f"{counts.get('a', 0)} items failed on the first side, {counts.get('b', 0)} on the "
                "second"
            )
        return found
