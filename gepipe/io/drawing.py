"""Draws results into pictures, so that they can be read on any background. For workers only.

Boxes and outlines of text have a dark edge inside and outside, labels a plate in the colour of
their class, track or line. All sizes grow with the picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from gepipe.errors import ItemError
from gepipe.io.plates import (
    DARK,
    Plate,
    Style,
    beside,
    color_of,
    draw_label,
    place,
    upon,
    write_label,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: What is looked for in a result.
_DRAWN = ("detections", "lines", "parts", "top_k", "classes")
_CAPTIONS = 3  # classes that are shown of a picture as a whole
#: Letters of a text that was read, as a share of its line's height.
_LETTER = 0.75
_LETTER_MIN = 10


def annotate(image: NDArray[np.uint8], result: Any, style: Style) -> None:
    """Draw a result into a picture: boxes, outlines with text, or the best classes as a caption.

    Args:
        image: (height, width, 3) uint8, BGR; drawn into.
        result: A record with `detections` (see `yolo`, `track`), `lines` or `parts` (see
            `text_boxes`, `gather`), `top_k` or `classes`.
        style: How to draw.

    Raises:
        ItemError: `not_drawable`: the result has nothing of the kind.
    """
    record = result if isinstance(result, Mapping) else {}
    if not any(key in record for key in _DRAWN):
        told = ", ".join(map(repr, record)) or type(result).__name__
        raise _refused(f"it holds {told}" if record else f"got {told}")
    try:
        if "detections" in record:
            entries = sorted(record["detections"], key=lambda entry: float(entry["score"]))
            _draw_boxes(image, entries, style)
            taken = _draw_counts(image, record.get("counts", {}), style)
            _draw_labels(image, entries, style, taken)
        elif "lines" in record or "parts" in record:
            _draw_outlines(image, record.get("lines", record.get("parts")), style)
        else:
            _draw_captions(image, record.get("top_k", record.get("classes"))[:_CAPTIONS], style)
    except (TypeError, KeyError, ValueError, IndexError, AttributeError) as error:
        raise _refused(f"one of these is not: {type(error).__name__}: {error}") from error


def _refused(why: str) -> ItemError:
    return ItemError(
        "not_drawable",
        "the result has nothing to draw: expected detections with class, score and box, lines or "
        f"parts with polygon or box, top_k, or classes; {why}",
    )


def _draw_boxes(image: NDArray[np.uint8], entries: Sequence[Any], style: Style) -> None:
    """Draw the boxes of objects, the worst of which comes first."""
    line, edge = _widths(_side(image, style))
    for entry in entries:
        x1, y1, x2, y2 = (round(value) for value in entry["box"])
        corners = (x1, y1), (max(x1, x2 - 1), max(y1, y2 - 1))
        cv2.rectangle(image, *corners, DARK, edge)
        cv2.rectangle(image, *corners, _color(entry), line)


def _draw_labels(
    image: NDArray[np.uint8], entries: Sequence[Any], style: Style, taken: list[Plate]
) -> None:
    side = _side(image, style)
    edge = _widths(side)[1]
    labels = []
    for entry in reversed(entries):  # the best choose first
        words, color = _words(entry, style), _color(entry)
        label = write_label(words, _size(side), style, color, image.shape[1])
        x1, y1, _, y2 = (round(value) for value in entry["box"])
        plate = place(label.shape, (x1 - edge // 2, y1, y2), image.shape, taken, edge)
        taken.append(plate)
        labels.append((plate, label))
    for plate, label in reversed(labels):  # and lie on top where there is no room for all
        draw_label(image, plate, label)


def _draw_outlines(image: NDArray[np.uint8], entries: Sequence[Any], style: Style) -> None:
    line, edge = _widths(_side(image, style) / 2)  # thin, or they would hide letters
    outlines = [_outline(entry) for entry in entries]
    for number, outline in enumerate(outlines):
        cv2.polylines(image, [outline], True, DARK, edge)
        cv2.polylines(image, [outline], True, color_of(number), line)
    # Labels are to hide neither each other nor another line.
    taken = np.zeros((2 * len(outlines), 4), np.int64)
    for number, outline in enumerate(outlines):
        taken[number] = (*outline.min(axis=0), *(outline.max(axis=0) + 1))
    for number, (entry, outline) in enumerate(zip(entries, outlines, strict=True)):
        words = _line_words(entry, number, style)
        if not words:
            continue
        height = np.linalg.norm(outline[3] - outline[0]) * _LETTER * style.scale
        size = max(_LETTER_MIN, round(height))
        color = color_of(number)
        label = write_label(words, size, style, color, image.shape[1])
        own = Plate(*taken[number].tolist())
        taken[number] = 0
        plate = beside(label.shape, own, image.shape, taken, edge)
        if plate is None:
            label = write_label(words, size, style, color, max(1, own.right - own.left))
            plate = upon(label.shape, own, image.shape)
        taken[number], taken[len(outlines) + number] = own, plate
        draw_label(image, plate, label)


def _draw_captions(image: NDArray[np.uint8], entries: Sequence[Any], style: Style) -> None:
    taken: list[Plate] = []
    for entry in entries:
        _draw_caption(image, _words(entry, style), color_of(int(entry["class"])), style, taken)


def _draw_counts(image: NDArray[np.uint8], counts: Mapping[str, int], style: Style) -> list[Plate]:
    taken: list[Plate] = []
    most = sorted(counts.items(), key=lambda item: -item[1])[:_CAPTIONS]
    for label, count in most:
        name = label if style.font else label.encode("ascii", "replace").decode()
        _draw_caption(image, f"{name}: {count}", DARK, style, taken)
    return taken


def _draw_caption(
    image: NDArray[np.uint8],
    words: str,
    color: tuple[int, int, int],
    style: Style,
    taken: list[Plate],
) -> None:
    """Draw a caption in the top left corner, below those that are there."""
    label = write_label(words, _size(_side(image, style)), style, color, image.shape[1])
    top = taken[-1].bottom if taken else 0
    plate = Plate(0, top, label.shape[1], top + label.shape[0])
    draw_label(image, plate, label)
    taken.append(plate)


def _side(image: NDArray[np.uint8], style: Style) -> float:
    return float(image.shape[0] + image.shape[1]) / 2 * style.scale


def _size(side: float) -> int:
    return max(12, round(side * 0.03))


def _widths(side: float) -> tuple[int, int]:
    """Return the widths of a line, and of the dark one beneath it."""
    line = max(1, round(side * 0.004))
    return line, line + 2 * max(1, round(line / 3))


def _color(entry: Mapping[str, Any]) -> tuple[int, int, int]:
    track = entry.get("track")
    return color_of(int(entry["class"] if track is None else track))


def _outline(entry: Mapping[str, Any]) -> NDArray[np.int32]:
    """Return the four corners of a part, clockwise from its top left."""
    points = np.asarray(entry["polygon"] if "polygon" in entry else entry["box"], np.float64)
    if points.size == 4:
        x1, y1, x2, y2 = points.ravel()
        points = np.array([(x1, y1), (x2, y1), (x2, y2), (x1, y2)])
    corners: NDArray[np.int32] = np.rint(points).astype(np.int32).reshape(4, 2)
    return corners


def _words(entry: Mapping[str, Any], style: Style) -> str:
    """Return the label of an object: of the best class that a further model found, if any did."""
    best = (entry.get("top_k") or (entry,))[0]
    label = best.get("label")
    # The built-in font would draw a row of empty boxes.
    drawable = label is not None and (style.font or str(label).isascii())
    name = str(label) if drawable else f"#{best['class']}"
    if entry.get("track") is not None:
        name = f"{entry['track']}: {name}"
    score = float(best["score"])
    return f"{name} {score:.0%}" if 0 <= score <= 1 else f"{name} {score:.3g}"


def _line_words(entry: Mapping[str, Any], number: int, style: Style) -> str:
    """Return what stands beside an outline; nothing if nothing is known of it."""
    if "text" in entry:
        text = " ".join(str(entry["text"]).split())
        return text if style.font or text.isascii() else f"#{number + 1}"
    return _words(entry, style) if "class" in entry or entry.get("top_k") else ""
