"""Operators that make text of what a text recogniser gives: of a line, and of a page."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gepipe.errors import ConfigError
from gepipe.ops.op import Meta, Op

if TYPE_CHECKING:
    from gepipe.ops.characters import Characters


@dataclass(frozen=True)
class Ctc(Op):
    """Read the text of a line: `{"text": "Total: 12.50", "confidence": 0.98}`.

    Takes the output of a recogniser that gives, for each step along the line, the probability of
    each character and of the blank between two (connectionist temporal classification). The best
    class of each step counts; what is repeated counts once, the blank not at all. `confidence` is
    the mean probability of the characters. The steps of what `crop` filled the line up with are
    left out, so that neither other lines of the batch nor the filling can add a character.

    Attributes:
        characters: File with the model's characters in the order of its classes, without the blank:
            text with one a line, or a JSON list. A file that is one short gets a space at its end,
            as PaddleOCR's do.
        blank: Class of the blank; -1 is the last.
        output: Name of the model's output; may be left out if there is only one.
    """

    stage: ClassVar[Literal["pre", "mid", "post", "both"]] = "post"
    shorthand: ClassVar[str | None] = "characters"
    characters: Path
    blank: int = 0
    output: str | None = None

    def __post_init__(self) -> None:
        if self.blank < -1:
            raise ValueError(f"blank must be a class, or -1 for the last, not {self.blank}")

    def __call__(self, value: Any, meta: Meta) -> Any:
        """Return the record.

        Raises:
            ItemError: `shape` if the output is not one row of probabilities a step.
            ConfigError: The characters do not fit the model.
        """
        from gepipe.ops import characters, scores

        name, array = scores.pick("ctc", value, self.output)
        steps = scores.one_table("ctc", name, array, "[steps, classes]")
        classes = array.shape[-1]
        if classes not in self._texts:
            known = self._characters.for_classes(classes, name, self.blank)
            self._texts[classes] = known
        if "filled" in meta:
            steps = steps[: characters.steps_of(len(steps), meta["filled"])]
        text, confidence = characters.decode(steps, self._texts[classes])
        return {"text": text, "confidence": confidence}

    def setup(self) -> None:
        """Read the characters.

        Raises:
            ConfigError: The file cannot be read or understood.
        """
        _ = self._characters

    @cached_property
    def _texts(self) -> dict[int, tuple[str, ...]]:
        """The text of each class, by how many classes the model has."""
        return {}

    @cached_property
    def _characters(self) -> Characters:
        from gepipe.ops.characters import Characters

        return Characters.read(self.characters)


@dataclass(frozen=True)
class PageText(Op):
    """Put the lines of a page into reading order, and add its whole text as `text`.

    Stands behind `gather`. Rows come from above, and what stands on one row is joined from left to
    right; between rows stands a line break. The list of lines is sorted in the same way. A line
    that failed stays in the list, at its end if it has no place, and adds nothing to the text. Of a
    line that was read both ways, see `upright` of crop, what was read with more confidence is kept.
    Where most text of a page is turned, as `turned` of the lines says, so is the order.

    Attributes:
        of: Key of the list of lines.
        join: What stands between two lines of one row; null gives each a row of its own.
        min_confidence: Lines that were read with less confidence are left out.
    """

    stage: ClassVar[Literal["pre", "mid", "post", "both"]] = "post"
    follows: ClassVar[str] = "gather"
    of: str = "lines"
    join: str | None = " "
    min_confidence: float = 0.0

    def __call__(self, value: Any, meta: Meta) -> Any:  # noqa: ARG002
        """Return the record with `text` in front.

        Raises:
            ConfigError: It has no such list.
        """
        from gepipe.ops.outline import Outline, page_turn, reading_rows

        found = value.get(self.of) if isinstance(value, dict) else None
        if not isinstance(found, list):
            raise ConfigError(
                f"page_text: the record before it has no list {self.of!r}; expected a gather "
                "operator before it, and crop in the stage before"
            )
        kept = [
            line for line in _surest(found) if line.get("confidence", 1.0) >= self.min_confidence
        ]
        places = [Outline.within(line) for line in kept]
        lines = [line for line, place in zip(kept, places, strict=True) if place is not None]
        outlines = [place for place in places if place is not None]
        turns = [line["turned"] if line.get("turned") in (90, 270) else 0 for line in lines]
        rows = reading_rows(outlines, page_turn(outlines, turns))
        if self.join is None:
            rows = [[index] for row in rows for index in row]
        texts = [
            (self.join or "").join(text for index in row if (text := lines[index].get("text")))
            for row in rows
        ]
        ordered = [lines[index] for row in rows for index in row]
        ordered += [line for line, place in zip(kept, places, strict=True) if place is None]
        record = {"text": "", **value, self.of: ordered}
        record["text"] = "\n".join(filter(None, texts))
        return record


def _surest(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return lines; of one that was read twice, turned both ways, what is surer."""
    kept: list[dict[str, Any]] = []
    for line in lines:
        before = kept[-1] if kept else {}
        if (before.get("turned"), line.get("turned")) != (90, 270) or (
            before.get("polygon") != line.get("polygon")
        ):
            kept.append(line)
        elif line.get("confidence", -1.0) > before.get("confidence", -1.0):
            kept[-1] = line
    return kept
