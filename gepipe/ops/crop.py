"""Operators that split a picture into parts: what was found in it, or the whole of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from gepipe.errors import ConfigError, ItemError
from gepipe.ops.decode import MAX_PIXELS
from gepipe.ops.op import Meta
from gepipe.ops.outline import Outline
from gepipe.ops.parts import Part, Splitter
from gepipe.tensors import DYNAMIC, TensorSpec, Variants

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Degrees clockwise by which text is turned that runs down or up.
_TURNS: Final[Mapping[str, tuple[int, ...]]] = {
    "down": (90,), "up": (270,), "both": (90, 270), "keep": ()
}  # fmt: skip


@dataclass(frozen=True)
class Crop(Splitter):
    """Cut what was found out of the picture: one part for each box, for the next model.

    Takes the list that an operator before it made: the `detections` of yolo, the `lines` of
    text_boxes, or any other whose entries have `box`, `[x1, y1, x2, y2]`, or `polygon`, four
    points `[x, y]` clockwise from the top left. A polygon is made a rectangle, as if the page had
    been turned and seen from above. One that is at least 1.5 x as high as wide holds text that runs
    down or up: `upright` says how it is made level, and `turned` in the record by how many degrees
    clockwise it was turned, 90 or 270. What lies outside the picture repeats its edge.

    By itself it makes pictures of the boxes' own sizes, for resize and the like. `height` and
    `widths` are for text: each part is scaled to `height`, keeping its ratio, and filled up on the
    right to the smallest of `widths` that holds it, so that a batch has a few shapes only.
    `meta["filled"]` says how far the part itself goes: `[pixels, of all]`.

    Attributes:
        of: Key of the list; may be left out if there is only one.
        margin: What is added around each box, as a share of its width and height on each side.
        height: Height in pixels that each part is scaled to.
        widths: Widths in pixels that parts are filled up to; what is wider than the largest is
            squeezed into it.
        fill: Value that parts are filled up with, 0 to 255.
        upright: How text runs in polygons that are much higher than wide: down the page, up, or
            both, for which each gives two parts, of which page_text keeps what was read with more
            confidence; keep leaves them as they are.
        color: Order of the channels, rgb or bgr, where the next model takes another one than that
            of decode_image.
    """

    shorthand: ClassVar[str | None] = "of"
    follows: ClassVar[str] = "yolo"
    of: str | None = None
    margin: float = 0.0
    height: int | None = None
    widths: tuple[int, ...] = ()
    fill: int = 127
    upright: Literal["down", "up", "both", "keep"] = "down"
    color: Literal["rgb", "bgr"] | None = None

    def __post_init__(self) -> None:
        if (self.height is None) != (not self.widths):
            raise ValueError("give height and widths together, or neither")
        if self.height is not None and min(self.height, *self.widths) < 1:
            raise ValueError(
                f"height and widths must be at least 1, not {self.height}, {list(self.widths)}"
            )
        if not -0.5 < self.margin <= 10:
            raise ValueError(f"margin must lie between -0.5 and 10, not {self.margin}")
        if not 0 <= self.fill <= 255:
            raise ValueError(f"fill must lie between 0 and 255, not {self.fill}")

    def key(self, value: Any) -> str:
        """Return the key of the list that the record is split by.

        Of several lists the one that is not empty; where all are, it is all the same.

        Raises:
            ConfigError: There is no such list, or several have boxes.
            ItemError: `parts`: there is no record.
        """
        if value is None:
            raise ItemError("parts", "crop: what is before it returned None, and no list of boxes")
        record = value if isinstance(value, Mapping) else {}
        found = {str(name): entries for name, entries in record.items() if _has_places(entries)}
        full = [name for name, entries in found.items() if entries]
        if self.of in found:
            return str(self.of)
        if self.of is None and len(full) == 1:
            return full[0]
        if self.of is None and full:
            names = ", ".join(map(repr, full))
            raise ConfigError(
                f"crop: what is before it made several lists, {names}; say which: of: …"
            )
        if self.of is None and found:
            return next(iter(found))
        what = "list of boxes" if self.of is None else f"list of boxes {self.of!r}"
        raise ConfigError(
            f"crop: what is before it made no {what}, but {_told(value)}; put yolo, text_boxes or "
            "a function of yours before it, which returns a mapping with a list of mappings, each "
            "with box or polygon"
        )

    def parts(self, value: Any, meta: Meta) -> list[dict[str, Any]]:  # noqa: ARG002
        """Return the entries of the list; of those whose text runs down or up, each way to read."""
        parts: list[dict[str, Any]] = []
        for entry in value[self.key(value)]:
            outline = Outline.within(entry)
            turns = _TURNS[self.upright] if outline is not None and outline.is_upright else ()
            parts += [{**entry, "turned": turn} for turn in turns] or [dict(entry)]
        return parts

    def part_size(self, facts: Mapping[str, Any]) -> tuple[int, int] | None:
        """Return height and width of a part; of one without a place, which will fail, any."""
        if Outline.within(facts) is None:
            return self.height or 1, min(self.widths, default=1)
        return self._sizes(self._outline(facts), facts)[1]

    def __call__(self, value: Part, meta: Meta) -> NDArray[Any]:
        """Return the part, `(height, width, 3)` uint8.

        Raises:
            ItemError: The facts do not say where it lies, or the picture cannot be read.
        """
        from gepipe.ops import cutting

        outline = self._outline(value.facts)
        inner, outer = self._sizes(outline, value.facts)
        height, width = outline.pixels
        if height * width > MAX_PIXELS:
            raise ItemError(
                "too_large",
                f"crop: the part would have {height}x{width} (height x width), over the limit of "
                f"{MAX_PIXELS:,} pixels; are its boxes in pixels of the picture?",
            )
        cut = cutting.rectified if not outline.straight else cutting.straight
        picture = cut(value.picture(), outline)
        if turned := self._turned(outline, value.facts):
            picture = cutting.leveled(picture, turned)
        if self.color not in (None, value.color):
            picture = cutting.recolored(picture)
        meta["filled"] = [inner[1], outer[1]]
        return cutting.fitted(picture, inner, outer, self.fill)

    def output_spec(self, spec: TensorSpec | None) -> TensorSpec | None:  # noqa: ARG002
        """Return an 8-bit picture in colour, its height known where `height` is given."""
        width = self.widths[0] if len(self.widths) == 1 else DYNAMIC
        return TensorSpec("", "uint8", (self.height or DYNAMIC, width, 3))

    def variants(self, given: Variants | None) -> Variants | None:
        """Return the pictures of each of `widths`, where they are given."""
        if self.height is None:
            return super().variants(given)
        widths = sorted(set(self.widths), reverse=True)
        specs = (TensorSpec("", "uint8", (self.height, width, 3)) for width in widths)
        return Variants(tuple(specs), complete=True)

    def _outline(self, facts: Mapping[str, Any]) -> Outline:
        outline = Outline.of(facts)
        return outline.grown(self.margin) if self.margin else outline

    def _turned(self, outline: Outline, facts: Mapping[str, Any]) -> int:
        """Return by how many degrees clockwise the text of a part is turned."""
        turns = _TURNS[self.upright] if outline.is_upright else ()
        turned = facts.get("turned")
        return turned if turned in turns else next(iter(turns), 0)

    def _sizes(
        self, outline: Outline, facts: Mapping[str, Any]
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return height and width of the part itself, and of what it is filled up to."""
        height, width = outline.pixels
        if self._turned(outline, facts):
            height, width = width, height
        if self.height is None:
            return (height, width), (height, width)
        wanted = max(1, math.ceil(self.height * width / height))
        outer = min((w for w in self.widths if w >= wanted), default=max(self.widths))
        return (self.height, min(wanted, outer)), (self.height, outer)


@dataclass(frozen=True)
class Whole(Splitter):
    """Take the whole picture as the one part, for another model that looks at it.

    What that model says is added to the record of the picture.
    """

    single: ClassVar[bool] = True

    def parts(self, value: Any, meta: Meta) -> list[dict[str, Any]]:  # noqa: ARG002
        """Return the one part, of which there is nothing to say."""
        return [{}]

    def __call__(self, value: Part, meta: Meta) -> NDArray[Any]:  # noqa: ARG002
        """Return the picture."""
        return value.picture()


def _told(value: Any) -> str:
    """Say what a value is."""
    if not isinstance(value, Mapping):
        return type(value).__name__
    return ", ".join(f"{name!r}: {type(its).__name__}" for name, its in value.items()) or "{}"


def _has_places(entries: Any) -> bool:
    """Whether a value is a list of places; one that lacks its place fails where it is cut."""
    if not isinstance(entries, list | tuple) or not all(isinstance(e, Mapping) for e in entries):
        return False
    return not entries or any("polygon" in entry or "box" in entry for entry in entries)
