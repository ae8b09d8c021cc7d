"""Boxes: read from a detector's output, thinned out, brought back to the original picture.

The numeric side of `yolo`. Loaded by workers only. All boxes are corners `x1, y1, x2, y2` in
float64, and all lists of them are sorted by score, the highest first; of equal scores, the one
that stands first in the model's output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.ops.op import Meta

#: How a model's output is laid out, once that is settled.
Layout = Literal["v5", "v8", "v8_rows", "end2end"]
#: Digits of a pixel that a record has: a hundredth is far less than any detector knows.
_DIGITS = 2
#: Boxes that are compared with all others at once: a call of NumPy costs more than their numbers.
_BLOCK = 64


class Boxes(NamedTuple):
    """Boxes of one item.

    Attributes:
        corners: (count, 4) float64.
        scores: (count,) in the model's precision.
        classes: (count,) whole numbers.
    """

    corners: NDArray[np.float64]
    scores: NDArray[Any]
    classes: NDArray[np.intp]

    def take(self, chosen: slice | NDArray[Any]) -> Boxes:
        """Return those at `chosen`."""
        return Boxes(self.corners[chosen], self.scores[chosen], self.classes[chosen])

    def rows(self) -> Iterator[tuple[int, float, list[float]]]:
        """Yield class, score and corners of each as plain numbers."""
        corners = np.round(self.corners, _DIGITS).tolist()
        return zip(self.classes.tolist(), self.scores.tolist(), corners, strict=True)


def decode(
    table: NDArray[Any], layout: Layout, confidence: float, wanted: Sequence[int] | None = None
) -> Boxes:
    """Return the boxes of an output whose score is high enough.

    Each place of the output counts for the class of its highest score, the lower class on a tie.
    What is NaN or infinite is left out.

    Args:
        table: The output for one item, two axes as `layout` says.
        layout: How to read it.
        confidence: Lowest score that is kept.
        wanted: Only these classes; None for all.
    """
    if layout == "end2end":
        places = np.flatnonzero(table[:, 4] >= confidence)
        corners = table[places, :4].astype(np.float64)
        scores, classes = table[places, 4], table[places, 5].astype(np.intp)
    else:
        places, scores, classes = _best(table, layout, confidence)
        centres = table[:4, places].T if layout == "v8" else table[places, :4]
        corners = _corners(centres.astype(np.float64))
    keep = np.isfinite(corners).all(axis=1) & np.isfinite(scores)
    if wanted is not None:
        keep &= np.isin(classes, wanted)
    order = np.flatnonzero(keep)
    order = order[np.argsort(-scores[order].astype(np.float64), kind="stable")]
    return Boxes(corners, scores, classes).take(order)


def _best(
    table: NDArray[Any], layout: Layout, confidence: float
) -> tuple[NDArray[np.intp], NDArray[Any], NDArray[np.intp]]:
    """Return the places whose best class scores high enough, with that score and class."""
    if layout == "v8":
        # The highest first, which is cheap, and which class it is only where it is high enough.
        highest = table[4:].max(axis=0)
        places = np.flatnonzero(highest >= confidence)
        return places, highest[places], table[4:, places].argmax(axis=0)
    if layout == "v8_rows":
        highest = table[:, 4:].max(axis=1)
        places = np.flatnonzero(highest >= confidence)
        return places, highest[places], table[places, 4:].argmax(axis=1)
    places = np.flatnonzero(table[:, 4] >= confidence)  # no product with a score is higher
    classes = table[places, 5:].argmax(axis=1)
    scores = table[places, 4] * table[places, 5 + classes]
    high = scores >= confidence
    return places[high], scores[high], classes[high]


def _corners(centres: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return corners for centre and extent, `cx, cy, w, h`."""
    half = centres[:, 2:] / 2
    corners: NDArray[np.float64] = np.hstack([centres[:, :2] - half, centres[:, :2] + half])
    return corners


def overlap(boxes: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return intersection over union of each box with each of others; 0 where both are empty.

    Args:
        boxes: (rows, 4) corners.
        others: (columns, 4) corners.
    """
    left, top, right, bottom = (values[:, None] for values in boxes.T)
    lefts, tops, rights, bottoms = others.T.copy()  # contiguous, twice as fast
    width = np.minimum(right, rights)
    width -= np.maximum(left, lefts)
    height = np.minimum(bottom, bottoms)
    height -= np.maximum(top, tops)
    shared = np.clip(width, 0, None, out=width)
    shared *= np.clip(height, 0, None, out=height)
    union = (right - left) * (bottom - top) + (rights - lefts) * (bottoms - tops)
    union -= shared
    result: NDArray[np.float64] = np.zeros_like(shared)
    np.divide(shared, union, out=result, where=union > 0)
    return result


def suppress(boxes: Boxes, iou: float, limit: int, *, agnostic: bool) -> NDArray[np.intp]:
    """Return which boxes remain: those that no better remaining one overlaps by more than `iou`.

    Args:
        boxes: Best first.
        iou: Largest overlap that is allowed.
        limit: Stop at that many.
        agnostic: Let boxes of other classes suppress one too.
    """
    kept: list[int] = []
    rest = np.arange(len(boxes.scores))
    while rest.size and len(kept) < limit:
        block = rest[:_BLOCK]
        suppressed = overlap(boxes.corners[block], boxes.corners[rest]) > iou
        if not agnostic:
            suppressed &= boxes.classes[block, None] == boxes.classes[rest]
        gone = np.zeros(rest.size, np.bool_)
        for at, index in enumerate(block.tolist()):
            if not gone[at]:
                kept.append(index)
                gone |= suppressed[at]
        rest = rest[_BLOCK:][~gone[_BLOCK:]]
    return np.array(kept[:limit], np.intp)


def soften(boxes: Boxes, sigma: float, confidence: float) -> Boxes:
    """Return the boxes with scores lowered by better ones of their class that they overlap.

    Soft-NMS: best first, each box multiplies the scores of the others of its class by
    `exp(-iou² / sigma)`. What gets below `confidence` is dropped.

    Args:
        boxes: Best first.
        sigma: Width of the Gaussian.
        confidence: Lowest score that is kept.
    """
    scores = boxes.scores.astype(np.float64)
    shares = overlap(boxes.corners, boxes.corners)
    order: list[int] = []
    rest = np.flatnonzero(scores >= confidence)
    while rest.size:
        at = int(scores[rest].argmax())
        first, rest = rest[at], np.delete(rest, at)
        order.append(int(first))
        same = rest[boxes.classes[rest] == boxes.classes[first]]
        scores[same] *= np.exp(-(shares[first, same] ** 2) / sigma)
        rest = rest[scores[rest] >= confidence]
    return Boxes(boxes.corners, scores, boxes.classes).take(np.array(order, np.intp))


def to_original(boxes: Boxes, meta: Meta) -> Boxes:
    """Return the boxes in pixels of the original picture, without those that lie outside.

    Args:
        boxes: In pixels of the model's input.
        meta: With the `scale` and `pad` of the geometry operators; without them nothing moves.
            With the original's `height` and `width`, boxes are cut off there.
    """
    corners = unplaced(boxes.corners, meta)
    if "height" in meta and "width" in meta:
        corners = np.clip(corners, 0.0, np.array([meta["width"], meta["height"]] * 2, np.float64))
    inside = (corners[:, 2] > corners[:, 0]) & (corners[:, 3] > corners[:, 1])
    return boxes._replace(corners=corners).take(inside)


def unplaced(corners: NDArray[np.float64], meta: Meta) -> NDArray[np.float64]:
    """Return corners as they were before the geometry operators that `meta` tells of."""
    (top, left), (rows, columns) = meta.get("pad", (0.0, 0.0)), meta.get("scale", (1.0, 1.0))
    shift, stretch = np.array([left, top] * 2), np.array([columns, rows] * 2)
    original: NDArray[np.float64] = (corners - shift) / stretch
    return original
