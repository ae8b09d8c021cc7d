"""Decodes what OpenCV gets wrong, through Pillow: CMYK, transparency, frames, TIFF, BMP, GIF."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import cv2
import numpy as np
from PIL import Image, ImageChops, ImageCms, ImageFile, UnidentifiedImageError

from gepipe.errors import ItemError
from gepipe.ops.header import ORIENTATION_TAG
from gepipe.ops.orientation import orient

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.ops.complaints import Complaints
    from gepipe.ops.header import Header

# Orientations that undo each other; the others are their own inverse.
_INVERSE = {6: 8, 8: 6}
_PILLOW_NAMES = {"PNM": "PPM"}


class Options(Protocol):
    """What a decoder must be told; see `gepipe.ops.decode.DecodeImage`."""

    @property
    def color(self) -> str:
        """Order of the channels."""

    @property
    def exif(self) -> str:
        """Whether EXIF orientation counts."""

    @property
    def truncated(self) -> str:
        """What becomes of files that are cut off."""

    @property
    def max_pixels(self) -> int:
        """Largest picture accepted."""

    @property
    def alpha(self) -> str:
        """What becomes of transparency."""


def decode(
    data: bytes, header: Header, options: Options, complaints: Complaints
) -> tuple[NDArray[np.uint8], str]:
    """Decode the first frame as stored, without orientation.

    Args:
        data: The whole file.
        header: Its header; the pixel limit has been checked.
        options: The operator's parameters.
        complaints: Catches what the C libraries say.

    Returns:
        (height, width, 3) RGB or, for `color: gray`, (height, width, 1); and the damage that the
        library came across.

    Raises:
        ItemError: `truncated`, `unreadable` or `unsupported`.
    """
    with _pillow(keep=options.truncated == "keep"):
        try:
            (pixels, before, after), damage = complaints.during(
                lambda: _decoded(data, header, options)
            )
        except ItemError:
            raise
        except UnidentifiedImageError:
            raise ItemError("unreadable", f"the {header.format} file does not decode") from None
        except Exception as error:  # noqa: BLE001 - Pillow raises almost anything on damaged files
            text = str(error)
            cut = "truncated" in text or "not enough image data" in text
            why = text or complaints.last or type(error).__name__
            raise ItemError(
                "truncated" if cut else "unreadable",
                f"the {header.format} file does not decode: {why}",
            ) from None
    if header.format == "TIFF" and before != after:
        # Newer Pillow turns TIFFs upright by itself: turn back, as orientation is not done here.
        pixels = orient(pixels, _INVERSE.get(before, before))
    if options.color == "gray":
        gray: NDArray[np.uint8] = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
        return gray[:, :, None], damage
    return pixels, damage


def _decoded(data: bytes, header: Header, options: Options) -> tuple[NDArray[np.uint8], int, int]:
    """Return the pixels, and the orientation before and after they were loaded."""
    name = _PILLOW_NAMES.get(header.format, header.format.upper())
    image = Image.open(io.BytesIO(data), formats=[name])
    # Only a TIFF may be turned upright while it is loaded, by newer Pillow.
    turnable = header.format == "TIFF"
    before = int(image.getexif().get(ORIENTATION_TAG, 1)) if turnable else 1
    image.load()
    after = int(image.getexif().get(ORIENTATION_TAG, 1)) if turnable else 1
    return _to_rgb(image, header, options), before, after


@contextmanager
def _pillow(*, keep: bool) -> Iterator[None]:
    """Set Pillow's global switches: our own pixel limit has been checked against the header."""
    limit, lenient = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
    Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES = None, keep
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES = limit, lenient


def _to_rgb(image: Image.Image, header: Header, options: Options) -> NDArray[np.uint8]:
    if image.mode.startswith("I"):
        if header.bits > 16:
            raise _unsupported(header, f"{header.bits}-bit integers")
        # Pillow's own conversion clips at 255 instead of scaling.
        deep = np.clip(np.asarray(image), 0, 65535).astype(np.uint16)
        return np.repeat((deep >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
    if image.mode == "F":
        raise _unsupported(header, "floating-point values")
    if image.mode == "CMYK":
        return _from_cmyk(image, header)
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        if options.alpha == "drop":
            return np.asarray(rgba.convert("RGB"))
        paper = Image.new("RGB", rgba.size, (255, 255, 255))
        paper.paste(rgba, mask=rgba.getchannel("A"))
        return np.asarray(paper)
    return np.asarray(image.convert("RGB"))


def _from_cmyk(image: Image.Image, header: Header) -> NDArray[np.uint8]:
    """Convert ink to light, by the file's own colour profile if it has one."""
    if header.format == "JPEG" and not header.adobe:
        # Pillow takes every CMYK JPEG for Adobe's, which are stored inverted.
        image = ImageChops.invert(image)
    if profile := image.info.get("icc_profile"):
        try:
            source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            target = ImageCms.createProfile("sRGB")
            if converted := ImageCms.profileToProfile(image, source, target, outputMode="RGB"):
                return np.asarray(converted)
        except (ImageCms.PyCMSError, OSError):
            pass  # a damaged profile: the plain formula is close enough
    return np.asarray(image.convert("RGB"))


def _unsupported(header: Header, what: str) -> ItemError:
    return ItemError(
        "unsupported",
        f"the {header.format} file holds {what}, which have no agreed range as a picture; "
        "convert it to 8 or 16 bits, or decode it in a python operator",
    )
