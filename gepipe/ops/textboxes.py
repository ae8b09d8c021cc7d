"""The operator that turns a text detector's map of probabilities into a list of lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from gepipe.ops.op import Meta, Op


@dataclass(frozen=True)
class TextBoxes(Op):
    """List where text stands in a picture: `{"lines": [{"polygon", "score"}, …]}`.

    Reads the output of detectors such as PaddleOCR's, which give each pixel the probability that it
    belongs to the core of a line of text (differentiable binarization, DB). `polygon` is the four
    corners `[x, y]` of a line, turned as the text is, clockwise from the top left, in pixels of the
    original picture: the way back through resize, letterbox, crop and pad is taken exactly, and
    what lies outside the picture is cut off. In the order in which one reads: rows from above, each
    from left to right; where most text runs down the page, columns from the right, each from above.

    Attributes:
        threshold: Pixels of a higher probability are text.
        confidence: Lowest mean probability of a line's pixels that is kept.
        unclip: By how much lines grow, since the map shows their core only: each side moves by
            area x unclip / perimeter.
        dilate: Side in pixels of the square that text pixels are widened to, which closes gaps
            between letters; 0 leaves them as they are.
        min_size: Lines that are lower or narrower in the map, in pixels, are noise.
        max_lines: Most lines that are looked at, the largest first; bounds the time an item takes.
        output: Name of the model's output; may be left out if there is only one.
    """

    stage: ClassVar[Literal["pre", "mid", "post", "both"]] = "post"
    shorthand: ClassVar[str | None] = "threshold"
    threshold: float = 0.3
    confidence: float = 0.5
    unclip: float = 1.6
    dilate: int = 2
    min_size: float = 3.0
    max_lines: int = 1000
    output: str | None = None

    def __post_init__(self) -> None:
        for name in ("threshold", "confidence"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")
        for name, least in (("unclip", 0), ("dilate", 0), ("min_size", 0), ("max_lines", 1)):
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")

    def __call__(self, value: Any, meta: Meta) -> Any:
        """Return the record.

        Raises:
            ItemError: `shape` if the output is no map.
            ConfigError: There is no such output, or there are several.
        """
        from gepipe.ops import regions, scores
        from gepipe.ops.outline import Outline, page_turn, reading_rows

        name, array = scores.pick("text_boxes", value, self.output)
        expected = "a map of probabilities, [1, height, width]"
        values = scores.one_table("text_boxes", name, array, expected)
        limits = regions.Limits(
            self.threshold, self.confidence, self.unclip, self.dilate, self.min_size, self.max_lines
        )
        found = regions.to_original(regions.find(values, limits), meta)
        lines = [{"polygon": points, "score": score} for points, score in found.rows()]
        outlines = [Outline.of(line) for line in lines]
        turns = [90 * outline.is_upright for outline in outlines]  # those that run up look the same
        rows = reading_rows(outlines, page_turn(outlines, turns))
        return {"lines": [lines[index] for row in rows for index in row]}
