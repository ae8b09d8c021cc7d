"""Hand-written loops that read pages with PP-OCRv6, see `loops` for their contract.

The steps are those that the makers of the models describe, in OpenCV and NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import onnx_loops
import onnxruntime
from harness import ROOT

from gepipe.runtime import tuning

MODELS = ROOT / "samples" / "models"
FINDER = MODELS / "pp_ocrv6_det_small.onnx"
READER = MODELS / "pp_ocrv6_rec_small.onnx"
CHARACTERS = MODELS / "pp_ocrv6_characters.txt"
HEIGHT, SIDE = 48, 736
_NARROWEST = 320  # what the reader was trained with
_MIN_SIZE = 3


def finder_input(page: np.ndarray) -> np.ndarray:
    """Return the finder's tensor of a page, (1, 3, height, width) float32."""
    high, wide = page.shape[:2]
    scale = max(1.0, SIDE / min(high, wide))
    size = [max(32, round(side * scale / 32) * 32) for side in (wide, high)]
    return _normalised(cv2.resize(page, size))[None]


def lines(probability: np.ndarray, page: np.ndarray) -> list[np.ndarray]:
    """Return the corners of the lines of a page, (4, 2) each, in reading order."""
    high, wide = probability.shape
    scale = np.array([page.shape[1] / wide, page.shape[0] / high])
    mask = cv2.dilate((probability > 0.3).astype(np.uint8), np.ones((2, 2), np.uint8))
    found = []
    for contour in cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)[0]:
        center, (width, height), angle = cv2.minAreaRect(contour)
        if min(width, height) < _MIN_SIZE:
            continue
        if _mean(probability, cv2.boxPoints((center, (width, height), angle))) < 0.5:
            continue
        grow = width * height * 1.6 / (width + height)
        corners = cv2.boxPoints((center, (width + grow, height + grow), angle)) * scale
        sums, differences = corners.sum(axis=1), np.diff(corners, axis=1)[:, 0]
        order = [sums.argmin(), differences.argmin(), sums.argmax(), differences.argmax()]
        found.append(corners[order].astype(np.float32))
    return sorted(found, key=lambda line: (round(line[:, 1].min() / 10), line[:, 0].min()))


def _mean(probability: np.ndarray, corners: np.ndarray) -> float:
    left, top = np.floor(corners.min(axis=0)).astype(int).clip(0)
    right, bottom = np.ceil(corners.max(axis=0)).astype(int)
    part = probability[top : bottom + 1, left : right + 1]
    mask = np.zeros(part.shape, np.uint8)
    cv2.fillPoly(mask, [(corners - [left, top]).astype(np.int32)], 1)
    return cv2.mean(part, mask)[0]


def cut(page: np.ndarray, line: np.ndarray) -> np.ndarray:
    """Return a line, level, 48 pixels high and as wide as it is."""
    width = max(1, int(max(np.linalg.norm(line[0] - line[1]), np.linalg.norm(line[3] - line[2]))))
    height = max(1, int(max(np.linalg.norm(line[0] - line[3]), np.linalg.norm(line[1] - line[2]))))
    target = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    level = cv2.warpPerspective(
        page,
        cv2.getPerspectiveTransform(line, target),
        (width, height),
        flags=cv2.INTER_CUBIC,
        borderMode=cv2.BORDER_REPLICATE,
    )
    return cv2.resize(level, (max(1, math.ceil(HEIGHT * width / height)), HEIGHT))


def _normalised(picture: np.ndarray) -> np.ndarray:
    values = picture.astype(np.float32)
    values *= 2 / 255
    values -= 1
    return values.transpose(2, 0, 1)


class Reader:
    """Reads lines that were cut out."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        characters = Path(CHARACTERS).read_text(encoding="utf-8").removesuffix("\n").split("\n")
        classes = session.get_outputs()[0].shape[-1]
        missing = classes - 1 - len(characters)
        self._characters = ["", *characters, *[" "] * missing]

    def __call__(self, cuts: list[np.ndarray], batch: int) -> list[str]:
        """Return the texts; lines of like widths are read together."""
        order = sorted(range(len(cuts)), key=lambda at: cuts[at].shape[1])
        texts = [""] * len(cuts)
        for first in range(0, len(order), batch):
            part = order[first : first + batch]
            width = max(_NARROWEST, *(cuts[at].shape[1] for at in part))
            rows = np.zeros((len(part), 3, HEIGHT, width), np.float32)
            for row, at in zip(rows, part, strict=True):
                row[:, :, : cuts[at].shape[1]] = _normalised(cuts[at])
            for at, scores in zip(part, self._session.run(None, {"x": rows})[0], strict=True):
                texts[at] = self._text(scores)
        return texts

    def _text(self, scores: np.ndarray) -> str:
        best = scores.argmax(axis=1)
        keep = (best != 0) & np.append(True, best[1:] != best[:-1])
        return "".join(self._characters[number] for number in best[keep])


def sequential(
    paths: list[str], threads: int, batch: int, *, spinning: bool = False
) -> Iterator[list[str]]:
    """One page after the other: find its lines, cut them out, read them."""
    tuning.keep_freed_memory()
    finder = onnx_loops.session(threads, spinning=spinning, model=str(FINDER))
    reader = Reader(onnx_loops.session(threads, spinning=spinning, model=str(READER)))

    def read(path: str) -> list[str]:
        page = cv2.imread(path)
        probability = finder.run(None, {"x": finder_input(page)})[0][0, 0]
        return reader([cut(page, line) for line in lines(probability, page)], batch)

    read(paths[0])
    yield []
    for path in paths:
        yield read(path)
