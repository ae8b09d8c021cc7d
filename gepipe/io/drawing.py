"""Draws results into pictures, so that they can be read on any background. For workers only.

Boxes have a dark edge inside and outside, labels a plate in the colour of their class. All sizes
grow with the picture.
"""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from gepipe.errors import ConfigError, ItemError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GOLDEN = 0.618034  # hues that follow each other by this share of the circle stay far apart
_DARK, _LIGHT = (0, 0, 0), (255, 255, 255)
_CAPTIONS = 3  # classes that are shown of a picture as a whole


@dataclass(frozen=True)
class Style:
    """How to draw.

    Attributes:
        scale: Size of lines and letters, 1 for what suits the picture.
        font: A font file; empty for the built-in one, which has the letters of ASCII. A label that
            cannot be drawn with it becomes the number of its class.
    """

    scale: float = 1.0
    font: str = ""


class Plate(NamedTuple):
    """A label's place: left, top, right and bottom in pixels."""

    left: int
    top: int
    right: int
    bottom: int

    def overlaps(self, other: Plate) -> bool:
        """Whether two have pixels in common."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


def annotate(image: NDArray[np.uint8], result: Any, style: Style) -> None:
    """Draw a result into a picture: the boxes of `detections`, or the best classes as a caption.

    Args:
        image: (height, width, 3) uint8, BGR; drawn into.
        result: A record with `detections` (see `yolo`), `top_k` or `classes`.
        style: How to draw.

    Raises:
        ItemError: `not_drawable`: the result has nothing of the kind.
    """
    record = result if isinstance(result, Mapping) else {}
    entries = record.get("detections", record.get("top_k", record.get("classes")))
    try:
        if "detections" in record:
            _draw_boxes(image, entries, style)
        else:
            _draw_captions(image, entries[:_CAPTIONS], style)
    except (TypeError, KeyError, ValueError, IndexError) as error:
        raise ItemError(
            "not_drawable",
            "the result has nothing to draw: expected detections with class, score and box, or "
            f"top_k, or classes; got {type(result).__name__}: {error}",
        ) from error


def color_of(number: int) -> tuple[int, int, int]:
    """Return the colour of a class, BGR."""
    red, green, blue = colorsys.hsv_to_rgb(number * _GOLDEN % 1, 0.75, 1.0)
    return round(blue * 255), round(green * 255), round(red * 255)


def _draw_boxes(image: NDArray[np.uint8], entries: Sequence[Any], style: Style) -> None:
    side = _side(image, style)
    line = max(1, round(side * 0.004))
    edge = line + 2 * max(1, round(line / 3))
    worst_first = sorted(entries, key=lambda entry: float(entry["score"]))
    for entry in worst_first:
        x1, y1, x2, y2 = (round(value) for value in entry["box"])
        corners = (x1, y1), (max(x1, x2 - 1), max(y1, y2 - 1))
        cv2.rectangle(image, *corners, _DARK, edge)
        cv2.rectangle(image, *corners, color_of(int(entry["class"])), line)
    taken: list[Plate] = []
    for entry in reversed(worst_first):  # the best choose first
        mask = _text(_words(entry, style), side, style, image.shape[1])
        x1, y1, _, y2 = (round(value) for value in entry["box"])
        plate = _place(mask.shape, (x1 - edge // 2, y1, y2), image.shape, taken, edge)
        taken.append(plate)
        _draw_plate(image, plate, mask, color_of(int(entry["class"])))


def _draw_captions(image: NDArray[np.uint8], entries: Sequence[Any], style: Style) -> None:
    top = 0
    for entry in entries:
        mask = _text(_words(entry, style), _side(image, style), style, image.shape[1])
        plate = Plate(0, top, mask.shape[1], top + mask.shape[0])
        _draw_plate(image, plate, mask, color_of(int(entry["class"])))
        top = plate.bottom


def _side(image: NDArray[np.uint8], style: Style) -> float:
    return float(image.shape[0] + image.shape[1]) / 2 * style.scale


def _words(entry: Mapping[str, Any], style: Style) -> str:
    label = entry.get("label")
    # The built-in font would draw a row of empty boxes.
    drawable = label is not None and (style.font or str(label).isascii())
    name = str(label) if drawable else f"#{entry['class']}"
    score = float(entry["score"])
    return f"{name} {score:.0%}" if 0 <= score <= 1 else f"{name} {score:.3g}"


def _place(
    size: tuple[int, ...],
    box: tuple[int, int, int],
    picture: tuple[int, ...],
    taken: Sequence[Plate],
    edge: int,
) -> Plate:
    """Return the first place for a label that lies in the picture and hides no other label."""
    (height, width), (left, top, bottom) = size[:2], box
    left = min(max(left, 0), max(0, picture[1] - width))
    last = max(0, picture[0] - height)
    # Above the box; inside, at its top and then downwards; below it.
    inside = range(top + edge, max(top + edge, bottom - height) + 1, max(1, height))
    tops = [top - edge // 2 - height, *inside, bottom + edge // 2]
    plates = [Plate(left, at, left + width, at + height) for at in tops if 0 <= at <= last]
    free = (plate for plate in plates if not any(plate.overlaps(each) for each in taken))
    at = min(max(top, 0), last)
    return next(free, plates[0] if plates else Plate(left, at, left + width, at + height))


def _draw_plate(
    image: NDArray[np.uint8], plate: Plate, mask: NDArray[np.uint8], color: tuple[int, int, int]
) -> None:
    part = image[plate.top : plate.bottom, plate.left : plate.right]
    blue, green, red = color
    ink = _DARK if 0.114 * blue + 0.587 * green + 0.299 * red > 140 else _LIGHT
    share = mask[: part.shape[0], : part.shape[1], None] / np.float32(255)
    mixed = np.array(ink, np.float32) * share + np.array(color, np.float32) * (1 - share)
    part[:] = np.rint(mixed)


def _text(words: str, side: float, style: Style, width: int) -> NDArray[np.uint8]:
    """Return how much of each pixel of a plate is ink, 0 to 255; no wider than `width`."""
    size = max(12, round(side * 0.03))
    font = _font(style.font, size)
    left, top, right, bottom = font.getbbox(words)
    # All plates of a picture are as high, whatever letters they have.
    ascent, descent = font.getmetrics()
    margin = max(2, size // 5)
    extent = (int(right - left) + 2 * margin, max(ascent + descent, int(bottom - top)) + margin)
    canvas = Image.new("L", extent, 0)
    ImageDraw.Draw(canvas).text((margin - left, margin // 2), words, fill=255, font=font)
    mask = np.asarray(canvas)
    if mask.shape[1] > width:
        height = max(1, round(mask.shape[0] * width / mask.shape[1]))
        mask = np.asarray(cv2.resize(mask, (width, height), interpolation=cv2.INTER_AREA))
    return mask


@lru_cache(maxsize=64)  # a run over pictures of many sizes needs many
def _font(path: str, size: int) -> ImageFont.FreeTypeFont:
    try:
        found = ImageFont.truetype(path, size) if path else ImageFont.load_default(size)
    except OSError as error:
        raise ConfigError(f"font: cannot read {path!r}: {error}") from error
    assert isinstance(found, ImageFont.FreeTypeFont)
    return found
