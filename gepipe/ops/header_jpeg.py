"""Reads the header of a JPEG file."""

from __future__ import annotations

import struct

from gepipe.ops.header import Header, exif_orientation

_SOS, _APP1, _APP14 = 0xDA, 0xE1, 0xEE
_NOT_FRAMES = frozenset((0xC4, 0xC8, 0xCC))  # DHT, JPG, DAC lie between the SOFn markers
_BARE = frozenset((0x01, *range(0xD0, 0xD9)))  # markers without a length
_EOI = b"\xff\xd9"


def read_jpeg(data: bytes) -> Header:
    """Walk the segments up to the first scan.

    Raises:
        IndexError, struct.error: The data ends before the size is known.
    """
    header = Header("JPEG")
    try:
        scan = _walk(data, header)
    except (IndexError, struct.error):
        if not header.height:
            raise
        return header  # cut, but the size is known: a limit on it can still be checked
    header.simple = header.bits == 8 and header.channels in (1, 3)
    # Inside a scan 0xFF is always escaped, so an end marker behind it is the real one. From the
    # end it is found at once; a second image may follow it, as in phone photos.
    header.complete = data.rfind(_EOI, scan) >= 0
    return header


def _walk(data: bytes, header: Header) -> int:
    """Fill in the header and return where the first scan begins."""
    at = 2
    while True:
        if data[at] != 0xFF:  # stray bytes between segments: go on at the next marker
            at = data.find(b"\xff", at)
            if at < 0:
                raise IndexError
            continue
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        if marker in _BARE or marker == 0:
            at += 2
            continue
        if marker == _SOS:
            return at
        length = data[at + 2] << 8 | data[at + 3]
        if 0xC0 <= marker <= 0xCF and marker not in _NOT_FRAMES:
            header.bits, header.height, header.width, header.channels = struct.unpack_from(
                ">BHHB", data, at + 4
            )
        elif marker == _APP1 and data[at + 4 : at + 10] == b"Exif\0\0":
            header.orientation = exif_orientation(data[at + 10 : at + 2 + length])
        elif marker == _APP14 and data[at + 4 : at + 9] == b"Adobe":
            header.adobe = True
        at += 2 + length
