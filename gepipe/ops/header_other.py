"""Reads the headers of GIF, BMP, WebP, TIFF and PNM files."""

from __future__ import annotations

import re
import struct
from typing import Final

from gepipe.ops.header import (
    ORIENTATION_TAG,
    Header,
    byte_order,
    exif_orientation,
    read_directory,
)

_MAX_PAGES = 100_000
_PNM_GAP: Final = rb"(?:\s|#[^\r\n]*[\r\n])+"
#: How a PNM file begins, as far as there is anything of it; text that begins with P5 does not.
PNM: Final = re.compile(rb"P[1-6](?:\Z|" + _PNM_GAP + rb"(?:\d|\Z)|\s*#[^\r\n]*\Z)")
_PNM_NUMBER: Final = re.compile(_PNM_GAP + rb"(\d{1,10})(?=\s|#)")


def read_gif(data: bytes) -> Header:
    """Walk all blocks and count the frames."""
    header = Header("GIF", frames=0)
    header.width, header.height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    try:
        while (block := data[at]) != 0x3B:
            if block == 0x2C:
                left, top, width, height, flags = struct.unpack_from("<HHHHB", data, at + 1)
                if header.frames == 0:  # decoders enlarge the screen to hold the first frame
                    header.width = max(header.width, left + width)
                    header.height = max(header.height, top + height)
                header.frames += 1
                at += 11 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
            else:
                at += 2
            while length := data[at]:
                at += length + 1
            at += 1
        header.complete = header.frames > 0
    except IndexError:
        pass
    return header


def read_bmp(data: bytes) -> Header:
    """Read the information header; sizes in BMP's file header are often wrong and not used."""
    header = Header("BMP")
    (pixels_at, info) = struct.unpack_from("<II", data, 10)
    compression = 0
    if info == 12:
        header.width, height, _, bits = struct.unpack_from("<HHHH", data, 18)
    else:
        header.width, height, _, bits, compression = struct.unpack_from("<iiHHI", data, 18)
    header.height, header.width = abs(height), abs(header.width)
    header.channels = 1 if bits <= 8 else bits // 8
    row_bytes = (header.width * bits + 31) // 32 * 4
    needed = row_bytes * header.height if compression in (0, 3, 6) else 2
    header.complete = len(data) >= pixels_at + needed
    if compression in (1, 2):  # run lengths end with an end-of-bitmap code
        header.complete = data.rstrip(b"\0")[-1:] == b"\1" or data[-2:] == b"\0\1"
    return header


def read_webp(data: bytes) -> Header:
    """Walk the RIFF chunks and count the frames."""
    header = Header("WebP", frames=0)
    (riff_bytes,) = struct.unpack_from("<I", data, 4)
    at, alpha = 12, False
    struct.unpack_from("<4sI", data, at)
    while at + 8 <= len(data):
        kind, length = struct.unpack_from("<4sI", data, at)
        body = at + 8
        if kind == b"VP8X":
            flags = data[body]
            alpha = bool(flags & 0x10)
            header.width = 1 + int.from_bytes(data[body + 4 : body + 7], "little")
            header.height = 1 + int.from_bytes(data[body + 7 : body + 10], "little")
        elif kind == b"VP8 " and not header.width:
            width, height = struct.unpack_from("<HH", data, body + 6)
            header.width, header.height = width & 0x3FFF, height & 0x3FFF
        elif kind == b"VP8L" and not header.width:
            (word,) = struct.unpack_from("<I", data, body + 1)
            header.width, header.height = 1 + (word & 0x3FFF), 1 + (word >> 14 & 0x3FFF)
            alpha = bool(word >> 28 & 1)
        elif kind == b"EXIF":
            header.orientation = exif_orientation(data[body : body + length])
        header.frames += kind in (b"VP8 ", b"VP8L", b"ANMF")
        at = body + length + (length & 1)
    header.channels = 4 if alpha else 3
    header.complete = header.frames > 0 and len(data) >= riff_bytes + 8 and at <= len(data) + 1
    header.simple = not alpha and header.frames == 1
    return header


def read_tiff(data: bytes) -> Header:
    """Read the first directory and count the others."""
    header = Header("TIFF")
    order = byte_order(data)
    (version,) = struct.unpack_from(order + "H", data, 2)
    big = version == 43
    (offset,) = struct.unpack_from(order + ("Q" if big else "I"), data, 8 if big else 4)
    fields, following = read_directory(data, offset, order, big=big)
    header.width, header.height = fields.get(256, (0,))[0], fields.get(257, (0,))[0]
    header.bits, header.channels = fields.get(258, (1,))[0], fields.get(277, (1,))[0]
    orientation = fields.get(ORIENTATION_TAG, (1,))[0]
    header.orientation = orientation if 1 <= orientation <= 8 else 1
    starts = fields.get(273, ()) or fields.get(324, ())
    lengths = fields.get(279, ()) or fields.get(325, ())
    ends = [start + length for start, length in zip(starts, lengths, strict=False)]
    header.complete = bool(starts) and max(ends, default=0) <= len(data)
    try:
        seen = {offset}
        while following and following not in seen and len(seen) < _MAX_PAGES:
            seen.add(following)
            header.frames += 1
            _, following = read_directory(data, following, order, big=big)
    except struct.error:
        header.complete = False
    return header


def read_pnm(data: bytes) -> Header:
    """Read the numbers of a PBM, PGM or PPM file (P1 to P6)."""
    kind, at = int(data[1:2]), 2
    numbers = []
    for _ in range(2 if kind in (1, 4) else 3):
        found = _PNM_NUMBER.match(data, at)
        if found is None:
            raise IndexError(f"no number at {at}")
        numbers.append(int(found[1]))
        at = found.end()
    header = Header("PNM", width=numbers[0], height=numbers[1])
    highest = numbers[2] if len(numbers) == 3 else 1
    header.channels = 3 if kind in (3, 6) else 1
    header.bits = 8 if highest < 256 else 16
    row_bytes = header.width * header.channels * header.bits // 8
    if kind == 4:
        row_bytes = (header.width + 7) // 8
    # Numbers in plain text (P1 to P3) are counted by the decoder.
    header.complete = kind <= 3 or len(data) > at + row_bytes * header.height
    header.simple = kind >= 5 and highest == 255
    return header
