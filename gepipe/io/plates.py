"""Labels on plates: text that can be read on any background, and where it finds room.

For workers only.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from gepipe.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GOLDEN = 0.618034  # hues that follow each other by this share of the circle stay far apart
DARK, LIGHT = (0, 0, 0), (255, 255, 255)
#: Size and length of labels that are kept to be drawn again.
_KEPT_SIZE = 48
_KEPT_LENGTH = 32


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


@lru_cache(maxsize=1024)
def color_of(number: int) -> tuple[int, int, int]:
    """Return the colour of a class, BGR."""
    red, green, blue = colorsys.hsv_to_rgb(number * _GOLDEN % 1, 0.75, 1.0)
    return round(blue * 255), round(green * 255), round(red * 255)


def place(
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
    first = None
    for at in chain((top - edge // 2 - height,), inside, (bottom + edge // 2,)):
        if 0 <= at <= last:
            plate = Plate(left, at, left + width, at + height)
            if not any(plate.overlaps(each) for each in taken):
                return plate
            first = first or plate
    at = min(max(top, 0), last)
    return first or Plate(left, at, left + width, at + height)


def beside(
    size: tuple[int, ...],
    own: Plate,
    picture: tuple[int, ...],
    taken: NDArray[np.int64],
    edge: int,
) -> Plate | None:
    """Return a place for a label next to what it belongs to; None where there is no room.

    Args:
        size: Of the label, height and width.
        own: What it belongs to.
        picture: Height and width.
        taken: (n, 4): what it is not to hide, as plates; empty ones do not count.
        edge: Pixels to keep off.
    """
    (height, width), gap = size[:2], edge // 2 + 1
    middle = (own.top + own.bottom - height) // 2
    corners = (
        (own.left, own.top - gap - height),
        (own.left, own.bottom + gap),
        (own.right + gap, middle),
        (own.left - gap - width, middle),
    )
    for left, top in corners:
        plate = Plate(left, top, left + width, top + height)
        inside = left >= 0 and top >= 0 and plate.right <= picture[1] and plate.bottom <= picture[0]
        hides = (taken[:, :2] < plate[2:]).all(axis=1) & (taken[:, 2:] > plate[:2]).all(axis=1)
        if inside and not hides.any():
            return plate
    return None


def upon(size: tuple[int, ...], own: Plate, picture: tuple[int, ...]) -> Plate:
    """Return the place for a label on what it belongs to."""
    height, width = size[:2]
    left = min(max(own.left, 0), max(0, picture[1] - width))
    top = min(max(own.top, 0), max(0, picture[0] - height))
    return Plate(left, top, left + width, top + height)


def write_label(
    words: str, size: int, style: Style, color: tuple[int, int, int], width: int
) -> NDArray[np.uint8]:
    """Return a text on a plate of a colour, in black or white, whichever stands out.

    Args:
        words: The text.
        size: Of the letters, in pixels.
        style: How to draw.
        color: Of the plate, BGR.
        width: Most pixels that the plate may be wide; it is made smaller if it is wider.

    Returns:
        (height, width, 3) uint8, BGR, not to be changed.
    """
    repeats = size <= _KEPT_SIZE and len(words) <= _KEPT_LENGTH
    label = (_label if repeats else _label.__wrapped__)(words, size, style.font, color)
    if label.shape[1] > width:
        height = max(1, round(label.shape[0] * width / label.shape[1]))
        label = np.asarray(cv2.resize(label, (width, height), interpolation=cv2.INTER_AREA))
    return label


@lru_cache(maxsize=256)  # those of a film repeat; at most 134 kB each, see `write_label`
def _label(words: str, size: int, font_path: str, color: tuple[int, int, int]) -> NDArray[np.uint8]:
    font = _font(font_path, size)
    left, top, right, bottom = font.getbbox(words)
    # All plates of a picture are as high, whatever letters they have.
    ascent, descent = font.getmetrics()
    margin = max(2, size // 5)
    extent = (int(right - left) + 2 * margin, max(ascent + descent, int(bottom - top)) + margin)
    canvas = Image.new("L", extent, 0)
    ImageDraw.Draw(canvas).text((margin - left, margin // 2), words, fill=255, font=font)
    blue, green, red = color
    ink = DARK if 0.114 * blue + 0.587 * green + 0.299 * red > 140 else LIGHT
    share = np.asarray(canvas)[..., None] / np.float32(255)
    mixed = np.array(ink, np.float32) * share + np.array(color, np.float32) * (1 - share)
    label: NDArray[np.uint8] = np.rint(mixed).astype(np.uint8)
    return label


def draw_label(image: NDArray[np.uint8], plate: Plate, label: NDArray[np.uint8]) -> None:
    """Put a label into its place, cut off where the picture ends."""
    part = image[plate.top : plate.bottom, plate.left : plate.right]
    part[:] = label[: part.shape[0], : part.shape[1]]


@lru_cache(maxsize=64)  # a run over pictures of many sizes needs many
def _font(path: str, size: int) -> ImageFont.FreeTypeFont:
    try:
        found = ImageFont.truetype(path, size) if path else ImageFont.load_default(size)
    except OSError as error:
        raise ConfigError(f"font: cannot read {path!r}: {error}") from error
    assert isinstance(found, ImageFont.FreeTypeFont)
    return found
