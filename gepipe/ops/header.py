"""What the header of an image file says, and the EXIF/TIFF directory that several formats share.

The header modules read bytes with the standard library alone and decode nothing. They are cheap
(about 10 µs for a photo), so that limits can be checked before any memory is spent.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

#: Bytes an element of each TIFF field type.
_FIELD_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 13: 4, 16: 8, 17: 8}
_FIELD_CODE = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q"}
ORIENTATION_TAG = 0x0112


@dataclass(slots=True)
class Header:
    """Facts about an encoded image.

    Attributes:
        format: Name as people write it, such as JPEG.
        height: Pixels, as stored (before EXIF orientation).
        width: Pixels, as stored.
        channels: 1 grey, 2 grey and alpha, 3 colour, 4 colour and alpha or CMYK.
        bits: Bits a channel.
        orientation: EXIF orientation, 1 to 8.
        frames: Frames or pages in the file.
        complete: Whether the file reaches its own end.
        simple: 8-bit grey or colour without transparency: the fast decoder gets it right.
        adobe: A JPEG with Adobe's APP14 segment, whose CMYK is stored inverted.
    """

    format: str
    height: int = 0
    width: int = 0
    channels: int = 3
    bits: int = 8
    orientation: int = 1
    frames: int = 1
    complete: bool = False
    simple: bool = False
    adobe: bool = False


class Directory(NamedTuple):
    """One TIFF directory: its integer fields and where the next directory lies (0: nowhere)."""

    fields: dict[int, tuple[int, ...]]
    following: int


def read_directory(data: bytes, offset: int, order: str, *, big: bool = False) -> Directory:
    """Read one directory of a TIFF structure.

    Args:
        data: The whole structure, starting with its `II` or `MM`.
        offset: Where the directory lies.
        order: `<` or `>`, as in `struct`.
        big: BigTIFF, with 64-bit offsets.

    Raises:
        struct.error: The data ends too early.
    """
    count_code, entry_bytes, word = ("Q", 20, "Q") if big else ("H", 12, "I")
    (count,) = struct.unpack_from(order + count_code, data, offset)
    start = offset + struct.calcsize(order + count_code)
    fields: dict[int, tuple[int, ...]] = {}
    for entry in range(start, start + count * entry_bytes, entry_bytes):
        tag, kind, length = struct.unpack_from(order + "HH" + word, data, entry)
        if (code := _FIELD_CODE.get(kind)) is None:
            continue
        at = entry + (12 if big else 8)
        if length * _FIELD_BYTES[kind] > (8 if big else 4):
            (at,) = struct.unpack_from(order + word, data, at)
        if at + length * _FIELD_BYTES[kind] > len(data):
            raise struct.error(f"field {tag} lies beyond the end")
        fields[tag] = struct.unpack_from(f"{order}{length}{code}", data, at)
    (following,) = struct.unpack_from(order + word, data, start + count * entry_bytes)
    return Directory(fields, following)


def byte_order(data: bytes) -> str:
    """Return `<` or `>` for a TIFF structure; ValueError if it is none."""
    if data[:2] not in (b"II", b"MM"):
        raise ValueError("not a TIFF structure")
    return "<" if data[:2] == b"II" else ">"


def exif_orientation(exif: bytes) -> int:
    """Return the orientation in an EXIF block, 1 where it is absent or damaged.

    Args:
        exif: The TIFF structure, with or without the leading `Exif` marker.
    """
    exif = exif.removeprefix(b"Exif\0\0")
    try:
        order = byte_order(exif)
        (offset,) = struct.unpack_from(order + "I", exif, 4)
        (count,) = struct.unpack_from(order + "H", exif, offset)
        # Entry by entry, not read_directory: maker notes are often damaged, this tag is not.
        for entry in range(offset + 2, offset + 2 + count * 12, 12):
            tag, kind = struct.unpack_from(order + "HH", exif, entry)
            if tag == ORIENTATION_TAG:
                (value,) = struct.unpack_from(order + ("I" if kind == 4 else "H"), exif, entry + 8)
                return value if 1 <= value <= 8 else 1
    except (struct.error, ValueError):
        pass
    return 1
