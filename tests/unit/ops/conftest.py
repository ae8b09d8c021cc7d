from __future__ import annotations

import io
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image


def picture(height: int = 48, width: int = 64, *, seed: int = 0) -> np.ndarray:
    """A smooth colour picture, (height, width, 3) uint8 RGB, different in every corner."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (4, 5, 3), np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR)


def encode(image: Any, kind: str, **options: Any) -> bytes:
    """The bytes of a file that Pillow writes from an array or an image."""
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image)
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def exif(orientation: int) -> bytes:
    block = Image.Exif()
    block[0x0112] = orientation
    return block.tobytes()


class Files:
    picture = staticmethod(picture)
    encode = staticmethod(encode)
    exif = staticmethod(exif)


@pytest.fixture(scope="session")
def files() -> type[Files]:
    return Files
