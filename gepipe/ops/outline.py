"""Where a part lies in a picture, as its facts say, and the order in which people read such parts.

Plain arithmetic, since the supervising process wants to know sizes too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Any, Final, NamedTuple

from gepipe.errors import ItemError

Point = tuple[float, float]
#: What is so much higher than wide holds text that runs down or up, by the convention of PaddleOCR.
_UPRIGHT: Final = 1.5


class Outline(NamedTuple):
    """Four corners, clockwise from the one that is top left for who reads it.

    Attributes:
        points: Each x and y, in pixels from the picture's top left corner.
        straight: Whether the sides run along the picture's own.
    """

    points: tuple[Point, ...]
    straight: bool

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Outline:
        """Return the outline that facts tell: `polygon`, four points, or `box`, `x1, y1, x2, y2`.

        Raises:
            ItemError: `shape`: they tell none.
        """
        try:
            if "polygon" in facts:
                points = tuple((float(x), float(y)) for x, y in facts["polygon"])
            else:
                left, top, right, bottom = map(float, facts["box"])
                points = ((left, top), (right, top), (right, bottom), (left, bottom))
        except (KeyError, TypeError, ValueError, OverflowError):
            points = ()
        if len(points) != 4 or not all(map(math.isfinite, (xy for p in points for xy in p))):
            known = {name: facts[name] for name in ("polygon", "box") if name in facts}
            raise ItemError(
                "shape",
                f"expected a polygon of four points [x, y] or a box [x1, y1, x2, y2], got {known}",
            )
        return cls(points, "polygon" not in facts)

    @classmethod
    def within(cls, facts: Mapping[str, Any]) -> Outline | None:
        """Return the outline that facts tell; None if they tell none."""
        try:
            return cls.of(facts)
        except ItemError:
            return None

    @property
    def width(self) -> float:
        """Length of the longer of its upper and lower side."""
        a, b, c, d = self.points
        return max(math.dist(a, b), math.dist(d, c))

    @property
    def height(self) -> float:
        """Length of the longer of its left and right side."""
        a, b, c, d = self.points
        return max(math.dist(a, d), math.dist(b, c))

    @property
    def center(self) -> Point:
        """The mean of its corners."""
        return fmean(x for x, _ in self.points), fmean(y for _, y in self.points)

    @property
    def angle(self) -> float:
        """By how much its longer sides are turned from the horizontal or vertical, in radians."""
        a, b, _, d = self.points
        (x1, y1), (x2, y2) = (a, b) if self.width >= self.height else (a, d)
        angle = math.atan2(y2 - y1, x2 - x1)
        return angle if self.width >= self.height else angle - math.pi / 2

    @property
    def pixels(self) -> tuple[int, int]:
        """Height and width in whole pixels, each at least 1."""
        if self.straight:
            (left, top), _, (right, bottom), _ = self.points
            return max(1, round(bottom) - round(top)), max(1, round(right) - round(left))
        return max(1, int(self.height)), max(1, int(self.width))

    @property
    def is_upright(self) -> bool:
        """Whether text in it runs down or up."""
        height, width = self.pixels
        return not self.straight and height >= _UPRIGHT * width

    def grown(self, margin: float) -> Outline:
        """Return it with `margin` x its extent added on each side."""
        (x0, y0), factor = self.center, 1 + 2 * margin
        return self._replace(
            points=tuple((x0 + (x - x0) * factor, y0 + (y - y0) * factor) for x, y in self.points)
        )


def page_turn(outlines: Sequence[Outline], turns: Sequence[int]) -> int:
    """Return by how many degrees clockwise most of a page's text is turned: 0, 90 or 270.

    Args:
        outlines: Its lines.
        turns: By how much each is turned.
    """
    lengths = {0: 0.0, 90: 0.0, 270: 0.0}
    for outline, turn in zip(outlines, turns, strict=True):
        lengths[turn] += max(outline.width, outline.height)
    return max(lengths, key=lambda turn: lengths[turn])  # of equals the first


def reading_rows(outlines: Sequence[Outline], turned: int = 0) -> list[list[int]]:
    """Return which outlines stand on a row together: rows from above, each from left to right.

    Two stand on one row if their centres differ in height by less than half of the lower one. The
    page may be turned by some degrees: by as much as the outlines are.

    Args:
        outlines: The outlines.
        turned: By how many degrees clockwise the page is turned as a whole: 0, 90 or 270.
    """
    if not outlines:
        return []
    turn = median(outline.angle for outline in outlines)
    sine, cosine = math.sin(turn), math.cos(turn)
    places = []
    for outline in outlines:
        x, y = outline.center
        if turned:
            x, y = (y, -x) if turned == 90 else (-y, x)
        places.append((x * cosine + y * sine, y * cosine - x * sine))
    by_height = sorted(range(len(outlines)), key=lambda i: places[i][1])
    heights = [outline.width if turned else outline.height for outline in outlines]
    rows = [[by_height[0]]]
    for before, index in pairwise(by_height):
        lower = min(heights[before], heights[index])
        level = fmean(places[i][1] for i in rows[-1])
        if places[index][1] - level < lower / 2:
            rows[-1].append(index)
        else:
            rows.append([index])
    return [sorted(row, key=lambda i: places[i][0]) for row in rows]
