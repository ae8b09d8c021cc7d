"""Operators that turn a model's outputs into a record: softmax, top classes, threshold, dump."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from gepipe.ops.labelled import Labelled
from gepipe.ops.op import Meta, Op


@dataclass(frozen=True)
class Softmax(Op):
    """Turn logits into probabilities that sum to one.

    Attributes:
        output: Name of the model's output; may be left out if there is only one.
        axis: Axis of the classes within one item.
    """

    stage: ClassVar[Literal["pre", "post", "both"]] = "post"
    shorthand: ClassVar[str | None] = "output"
    output: str | None = None
    axis: int = -1

    def __call__(self, value: Any, meta: Meta) -> Any:  # noqa: ARG002
        """Return the outputs with the one in question replaced, float32."""
        from gepipe.ops import scores

        name, array = scores.pick("softmax", value, self.output)
        return {**value, name: scores.softmax(array, self.axis)}


@dataclass(frozen=True)
class TopK(Labelled):
    """List the classes with the highest scores: `{"top_k": [{"class", "label", "score"}, …]}`.

    Highest first; of equal scores, the lower class first. NaN comes last of all.

    Attributes:
        k: How many classes.
        labels: File with the classes' names: a JSON list, a JSON object such as
            {"282": "tiger cat"}, or text with one name a line.
        output: Name of the model's output; may be left out if there is only one.
    """

    stage: ClassVar[Literal["pre", "post", "both"]] = "post"
    shorthand: ClassVar[str | None] = "k"
    k: int = 5
    labels: Path | None = None
    output: str | None = None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k must be at least 1, not {self.k}")

    def __call__(self, value: Any, meta: Meta) -> Any:  # noqa: ARG002
        """Return the record.

        Raises:
            ItemError: `shape` if there is not one row of scores.
            ConfigError: The labels do not fit the model.
        """
        from gepipe.ops import scores

        name, array = scores.pick("top_k", value, self.output)
        row = scores.one_row("top_k", name, array)
        return {"top_k": scores.entries(row, scores.top(row, self.k), self._labels, name)}


@dataclass(frozen=True)
class Threshold(Labelled):
    """Keep the classes whose score is high enough, highest first.

    After `top_k` it shortens that list. Otherwise it takes an output of the model, as of one with
    several labels an item, and gives `{"classes": [{"class", "label", "score"}, …]}`.

    Attributes:
        min_score: Lowest score that is kept.
        labels: File with the classes' names, as for top_k.
        output: Name of the model's output; may be left out if there is only one.
    """

    stage: ClassVar[Literal["pre", "post", "both"]] = "post"
    shorthand: ClassVar[str | None] = "min_score"
    min_score: float
    labels: Path | None = None
    output: str | None = None

    def __call__(self, value: Any, meta: Meta) -> Any:  # noqa: ARG002
        """Return the record.

        Raises:
            ItemError: `shape` if there is not one row of scores.
            ConfigError: The labels do not fit the model.
        """
        from gepipe.ops import scores

        if isinstance(value, dict) and isinstance(value.get("top_k"), list):
            kept = [entry for entry in value["top_k"] if entry["score"] >= self.min_score]
            return {**value, "top_k": kept}
        name, array = scores.pick("threshold", value, self.output)
        row = scores.one_row("threshold", name, array)
        chosen = scores.above(row, self.min_score)
        return {"classes": scores.entries(row, chosen, self._labels, name)}


@dataclass(frozen=True)
class Identity(Op):
    """Return the model's outputs as they are. What a post stage without operators does.

    Attributes:
        outputs: Names of the outputs to keep; all by default.
    """

    stage: ClassVar[Literal["pre", "post", "both"]] = "post"
    shorthand: ClassVar[str | None] = "outputs"
    outputs: tuple[str, ...] | None = None

    def __call__(self, value: Any, meta: Meta) -> Any:  # noqa: ARG002
        """Return dict of name to array, copied out of the slot."""
        from gepipe.ops import scores

        return scores.dump(value, self.outputs)
