"""Regions of text: found in a map of probabilities, brought back to the original picture.

The numeric side of `text_boxes`. Loaded by workers only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import cv2
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.ops.op import Meta

#: Digits of a pixel that a record has.
_DIGITS = 2


class Limits(NamedTuple):
    """What counts as text; see `gepipe.ops.textboxes.TextBoxes`."""

    threshold: float
    confidence: float
    unclip: float
    dilate: int
    min_size: float
    max_lines: int


class Regions(NamedTuple):
    """Regions of one item.

    Attributes:
        corners: (count, 4, 2) float64, x and y, clockwise from the top left.
        scores: (count,) float64.
    """

    corners: NDArray[np.float64]
    scores: NDArray[np.float64]

    def rows(self) -> Iterator[tuple[list[list[float]], float]]:
        """Yield corners and score of each as plain numbers."""
        corners = np.round(self.corners, _DIGITS).tolist()
        return zip(corners, self.scores.tolist(), strict=True)


def find(probability: NDArray[Any], limits: Limits) -> Regions:
    """Return the regions of a map, in its pixels.

    Args:
        probability: (height, width), from 0 to 1; what is NaN counts as 0. Not modified.
        limits: What counts as text.
    """
    values = np.asarray(probability, np.float32)
    if not np.isfinite(values.sum(dtype=np.float64)):
        values = np.nan_to_num(values, nan=0.0, posinf=1.0, neginf=0.0)
    mask = (values > limits.threshold).astype(np.uint8)
    if limits.dilate > 1:
        mask = cv2.dilate(mask, np.ones((limits.dilate, limits.dilate), np.uint8))
    contours = list(cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)[0])
    if len(contours) > limits.max_lines:
        contours = sorted(contours, key=cv2.contourArea, reverse=True)[: limits.max_lines]
    corners, scores = [], []
    for contour in contours:
        center, (width, height), angle = cv2.minAreaRect(contour)
        if min(width, height) < limits.min_size or not width * height:
            continue
        score = _mean_within(values, cv2.boxPoints((center, (width, height), angle)))
        if score < limits.confidence:
            continue
        grow = width * height * limits.unclip / (width + height)  # both sides of each
        grown = cv2.boxPoints((center, (width + grow, height + grow), angle))
        corners.append(_clockwise(grown.astype(np.float64)))
        scores.append(score)
    return Regions(np.array(corners, np.float64).reshape(-1, 4, 2), np.array(scores, np.float64))


def to_original(regions: Regions, meta: Meta) -> Regions:
    """Return the regions in pixels of the original picture, without those that lie outside.

    Args:
        regions: In pixels of the model's input.
        meta: With the `scale` and `pad` of the geometry operators; without them nothing moves.
            With the original's `height` and `width`, regions are cut off there.
    """
    (top, left), (rows, columns) = meta.get("pad", (0.0, 0.0)), meta.get("scale", (1.0, 1.0))
    corners = (regions.corners - [left, top]) / [columns, rows]
    if "height" in meta and "width" in meta:
        corners = np.clip(corners, 0.0, [meta["width"], meta["height"]])
    extent = np.ptp(corners, axis=1)
    inside = (extent > 0).all(axis=1)
    return Regions(corners[inside], regions.scores[inside])


def _mean_within(values: NDArray[np.float32], corners: NDArray[np.float32]) -> float:
    """Return the mean of what a quadrilateral covers."""
    height, width = values.shape
    left, top = np.floor(corners.min(axis=0)).astype(int).clip(0, [width - 1, height - 1])
    right, bottom = np.ceil(corners.max(axis=0)).astype(int).clip(0, [width - 1, height - 1])
    part = values[top : bottom + 1, left : right + 1]
    mask = np.zeros(part.shape, np.uint8)
    cv2.fillPoly(mask, [(corners - [left, top]).astype(np.int32)], 1)
    return float(cv2.mean(part, mask)[0])


def _clockwise(corners: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the corners of a rectangle clockwise, as one sees it, from the top left one."""
    first, second = corners[1] - corners[0], corners[3] - corners[0]
    if first[0] * second[1] - first[1] * second[0] < 0:
        corners = corners[::-1]
    return np.roll(corners, -int(corners.sum(axis=1).argmin()), axis=0)
