"""Decodes image files. Loaded by workers only.

Plain 8-bit files go through OpenCV, which is fastest; everything unusual (CMYK, transparency,
several frames, TIFF, deep PNM) goes through Pillow, in `unusual.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import cv2
import numpy as np

from gepipe.errors import ItemError
from gepipe.ops.complaints import Complaints
from gepipe.ops.header import Header
from gepipe.ops.header_png import damaged_chunk
from gepipe.ops.orientation import MIRRORED, UPSIDE_DOWN, orient
from gepipe.ops.sniff import read_header

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.ops.op import Meta
    from gepipe.ops.unusual import Options


class Fit(NamedTuple):
    """What a reduced-scale decode must keep.

    Attributes:
        size: Given the original's height and width, the smallest size to deliver.
        whole: Accept only scales that divide the original without remainder.
    """

    size: Callable[[int, int], tuple[int, int]]
    whole: bool


class Field(NamedTuple):
    """The part of a decoded picture that shows the original, in its pixels.

    It is all of it, except at a reduced scale: the decoder rounds up, so that the last pixel may
    stand for fewer pixels of the original than the others.
    """

    top: float
    left: float
    height: float
    width: float


_COLOR_AT = {
    8: cv2.IMREAD_REDUCED_COLOR_8,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    1: cv2.IMREAD_COLOR,
}
_GRAY_AT = {
    8: cv2.IMREAD_REDUCED_GRAYSCALE_8,
    4: cv2.IMREAD_REDUCED_GRAYSCALE_4,
    2: cv2.IMREAD_REDUCED_GRAYSCALE_2,
    1: cv2.IMREAD_GRAYSCALE,
}


class Picture(NamedTuple):
    """A decoded picture, in whatever order its decoder delivers.

    Attributes:
        pixels: (height, width, 3) uint8; (height, width, 1) if grey.
        order: `rgb`, `bgr` or `gray`.
        height: Rows of the original after orientation; `pixels` has fewer if decoded reduced.
        width: Columns of the original after orientation.
        field: Where the original lies within `pixels`.
    """

    pixels: NDArray[np.uint8]
    order: str
    height: int
    width: int
    field: Field


def decode(value: Any, options: Options, meta: Meta, fit: Fit | None = None) -> Picture:
    """Decode one file.

    Args:
        value: The file's bytes, or a 1-D uint8 array of them; or, as `meta["frame"]` tells, the
            frame of a video, (height, width, 3) uint8 in BGR, which is taken as it is.
        options: The operator's parameters. `color` decides only between grey and colour here.
        meta: Gets `height` and `width` of the original; `frames`, `truncated` and `damaged` where
            they apply.
        fit: Allows a reduced-scale decode that is no smaller than the size it returns.

    Raises:
        ItemError: `empty`, `not_an_image`, `too_large`, `truncated`, `damaged`, `unreadable`,
            `unsupported`.
    """
    if "frame" in meta and isinstance(value, np.ndarray):
        return _of_frame(value, options)
    data = _as_bytes(value)
    header = read_header(data)
    if header.height * header.width > options.max_pixels:
        raise ItemError(
            "too_large",
            f"the {header.format} file holds {header.width}x{header.height} = "
            f"{header.width * header.height:,} pixels, over the limit of {options.max_pixels:,}; "
            "raise max_pixels of decode_image if that is wanted",
        )
    if not header.complete:
        if options.truncated == "fail":
            raise ItemError(
                "truncated",
                f"the {header.format} file is cut off ({len(data):,} bytes, no end found); "
                "`truncated: keep` of decode_image takes what is there",
            )
        meta["truncated"] = True
    if header.frames > 1:
        meta["frames"] = header.frames
    turn = header.orientation if options.exif == "apply" else 1
    height, width = header.height, header.width
    if turn >= 5:
        height, width = width, height
    meta["height"], meta["width"] = height, width
    gray = options.color == "gray"
    divisor, order = 1, "gray" if gray else "bgr"
    pixels: NDArray[np.uint8] | None = None
    damage = ""
    if header.simple and header.complete:
        if fit is not None and header.format == "JPEG":
            divisor = _divisor(height, width, fit)
        flag = _GRAY_AT[divisor] if gray else _COLOR_AT[divisor]
        pixels, damage = _decode_simple(data, header, flag)
    if pixels is None:  # unusual, or damaged: the other library tells, and says what is wrong
        from gepipe.ops import unusual

        divisor, order = 1, "gray" if gray else "rgb"
        pixels, damage = unusual.decode(data, header, options, _complaints())
    if damage and header.complete:
        if options.truncated == "fail":
            raise ItemError(
                "damaged",
                f"the {header.format} file is damaged within: {damage}; "
                "`truncated: keep` of decode_image takes it as it is",
            )
        meta["damaged"] = damage
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    pixels = orient(pixels, turn)
    shown_height, shown_width = height / divisor, width / divisor
    top = pixels.shape[0] - shown_height if turn in UPSIDE_DOWN else 0.0
    left = pixels.shape[1] - shown_width if turn in MIRRORED else 0.0
    return Picture(pixels, order, height, width, Field(top, left, shown_height, shown_width))


def in_order(picture: Picture, color: str) -> NDArray[np.uint8]:
    """Return the pixels with the channels as `color` says: rgb, bgr or gray."""
    if picture.order == color:
        return picture.pixels
    swapped: NDArray[np.uint8] = cv2.cvtColor(picture.pixels, cv2.COLOR_BGR2RGB)
    return swapped


def silence() -> None:
    """Keep OpenCV from writing about damaged files to standard error; errors say it instead."""
    logging = getattr(getattr(cv2, "utils", None), "logging", None)
    if logging is not None:
        logging.setLogLevel(logging.LOG_LEVEL_SILENT)


def _of_frame(pixels: NDArray[np.uint8], options: Options) -> Picture:
    height, width, _ = pixels.shape
    order = "bgr"
    if options.color == "gray":
        pixels, order = cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY)[:, :, None], "gray"
    return Picture(pixels, order, height, width, Field(0.0, 0.0, height, width))


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 1:
        return value.tobytes()
    found = (
        f"an array {value.dtype} {list(value.shape)}"
        if isinstance(value, np.ndarray)
        else type(value).__name__
    )
    raise ItemError(
        "shape",
        f"decode_image needs the bytes of a file, got {found}; remove it if decoded already",
    )


def _divisor(height: int, width: int, fit: Fit) -> int:
    """Choose the smallest scale whose result still is as large as wanted."""
    need_height, need_width = fit.size(height, width)
    for divisor in (8, 4, 2):
        if (
            height >= need_height * divisor
            and width >= need_width * divisor
            and not (fit.whole and (height % divisor or width % divisor))
        ):
            return divisor
    return 1


def _decode_simple(data: bytes, header: Header, flag: int) -> tuple[NDArray[np.uint8] | None, str]:
    """Return the pixels, None if OpenCV cannot decode them, and the damage that it came across."""
    if header.format == "PNG" and damaged_chunk(data):
        raise ItemError("unreadable", "the PNG file is damaged: a checksum of its pixels is wrong")
    buffer, flag = np.frombuffer(data, np.uint8), flag | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        return _complaints().during(lambda: cv2.imdecode(buffer, flag))
    except cv2.error:
        return None, ""


@cache
def _complaints() -> Complaints:
    return Complaints()
