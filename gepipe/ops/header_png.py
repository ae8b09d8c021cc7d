"""Reads the header of a PNG file and checks that its chunks are whole."""

from __future__ import annotations

import struct
import zlib

from gepipe.ops.header import Header, exif_orientation

_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}


def read_png(data: bytes) -> Header:
    """Walk all chunks; the pixel data is passed over.

    Raises:
        struct.error: The data ends inside the first chunk.
    """
    header = Header("PNG")
    header.width, header.height, header.bits, color = struct.unpack_from(">IIBB", data, 16)
    header.channels = _CHANNELS.get(color, 3)
    transparent = color in (4, 6)
    at, size = 8, len(data)
    while at + 12 <= size:
        length, kind = struct.unpack_from(">I4s", data, at)
        following = at + 12 + length
        if following > size:
            break
        if kind == b"tRNS":
            transparent = True
        elif kind == b"eXIf":
            header.orientation = exif_orientation(data[at + 8 : following - 4])
        elif kind == b"acTL":
            (header.frames,) = struct.unpack_from(">I", data, at + 8)
        elif kind == b"IEND":
            header.complete = True
            break
        at = following
    header.simple = not transparent and header.frames == 1
    return header


def damaged_chunk(data: bytes) -> str | None:
    """Return the name of the first pixel-data chunk whose checksum is wrong, if there is one.

    Decoders differ here, and some fill what is missing with black.
    """
    at, view = 8, memoryview(data)
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 8 + length
        if kind == b"IDAT" and end + 4 <= len(data):
            (stored,) = struct.unpack_from(">I", data, end)
            if zlib.crc32(view[at + 4 : end]) != stored:
                return "IDAT"
        at = end + 4
    return None
