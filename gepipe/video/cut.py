"""Whether a file is shorter than it says, as where a copy or a recording was broken off."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import BinaryIO, Final

#: Elements of Matroska; their sizes say "unknown" with all bits set.
_EBML: Final = b"\x1a\x45\xdf\xa3"
_SEGMENT: Final = b"\x18\x53\x80\x67"
_BOXES: Final = frozenset(
    {b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"moof", b"styp", b"sidx", b"uuid",
     b"meta", b"mfra", b"pdin", b"udta", b"pnot"}
)  # fmt: skip


def missing_nbytes(path: bytes) -> int:
    """Return how many bytes a file ought to have and does not, by its own structure; 0 if unknown.

    Knows AVI, Matroska and MP4 with their relatives. What is behind the end does not count.
    """
    with suppress(OSError), open(path, "rb") as file:  # noqa: PTH123 - bytes
        size = os.fstat(file.fileno()).st_size
        head = file.read(64)
        if head[:4] == b"RIFF":
            return max(0, _end_of_riff(file, size) - size)
        if head[:4] == _EBML:
            return max(0, _end_of_segment(head) - size)
        if head[4:8] in _BOXES:
            return max(0, _end_of_boxes(file, size) - size)
    return 0


def _end_of_riff(file: BinaryIO, size: int) -> int:
    """Return where the last piece ends; large files have several, one behind the other."""
    start = end = 0
    while start + 8 <= size:
        file.seek(start)
        head = file.read(8)
        if head[:4] != b"RIFF":
            break
        length = int.from_bytes(head[4:], "little")
        if length in (0, 0xFFFFFFFF):  # left open by who wrote it
            return 0
        end = start + 8 + length  # some leave out the byte behind it that makes it even
        start = end + (length & 1)
    return end


def _end_of_segment(head: bytes) -> int:
    start = _behind_number(head, 4)
    length = _number(head, 4)
    if start is None or length is None:
        return 0
    place = start + length
    if head[place : place + 4] != _SEGMENT:
        return 0
    start, length = _behind_number(head, place + 4), _number(head, place + 4)
    return 0 if start is None or length is None else start + length


def _behind_number(data: bytes, place: int) -> int | None:
    if place >= len(data) or not data[place]:
        return None
    return place + 9 - data[place].bit_length()


def _number(data: bytes, place: int) -> int | None:
    """Return a number of variable length; None if it is not there, or says "unknown"."""
    behind = _behind_number(data, place)
    if behind is None or behind > len(data):
        return None
    bits = 7 * (behind - place)
    value = int.from_bytes(data[place:behind], "big") & ((1 << bits) - 1)
    return None if value == (1 << bits) - 1 else value


def _end_of_boxes(file: BinaryIO, size: int) -> int:
    end = 0
    while end + 8 <= size:
        file.seek(end)
        head = file.read(16)
        length, kind = int.from_bytes(head[:4], "big"), head[4:8]
        if kind not in _BOXES or not length:  # something else; or up to the end, whatever that is
            return end
        if length == 1:
            length = int.from_bytes(head[8:], "big")
        if length < 8:
            return 0
        end += length
    return end
