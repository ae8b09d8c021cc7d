"""Looks into packets without decoding them: whether each is one frame, and which begin anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from gepipe.video.nalunits import H264, H265
from gepipe.video.packetkind import PacketKind

#: Codecs each packet of which is a frame; the container knows whether it needs others.
_PLAIN: Final = (
    "mjpeg", "prores", "dnxhd", "png", "rawvideo", "huffyuv", "ffvhuff", "utvideo", "dvvideo",
    "jpeg2000", "v210", "magicyuv", "cfhd", "ffv1",
)  # fmt: skip
#: Smaller pictures of MPEG-4 may be none: a place where the one before is shown on.
_MPEG4_BYTES_MIN: Final = 16

Look = Callable[[bytes], PacketKind]


def look_of(codec: str, extradata: bytes) -> Look | None:
    """Return what looks into the packets of a codec, None if that is not known.

    Args:
        codec: Its name, as FFmpeg calls the format and not the decoder.
        extradata: What the container says of it.
    """
    try:
        if codec in _NAL_UNITS:
            return _NAL_UNITS[codec](extradata)
    except (ValueError, IndexError):
        return None
    return _plain if codec in _PLAIN else _LOOKS.get(codec)


def kind_of(packet: Any, look: Look) -> PacketKind:
    """Return what a packet holds, by its bytes and by what the container says of it."""
    if packet.pts is None or packet.is_corrupt or not packet.size:
        return PacketKind.UNSURE
    try:
        kind = look(bytes(packet))
    except (ValueError, IndexError):
        return PacketKind.UNSURE
    return PacketKind.FRAME if kind is PacketKind.KEY and not packet.is_keyframe else kind


def _plain(_: bytes) -> PacketKind:
    return PacketKind.KEY


def _mpeg12(data: bytes) -> PacketKind:
    """Look at MPEG-1 and MPEG-2; pictures may be fields, of which two are a frame."""
    if data.count(b"\0\0\1\0") != 1 or b"\0\0\1\xb7" in data:
        return PacketKind.UNSURE
    place = data.index(b"\0\0\1\0") + 4
    extension = data.find(b"\0\0\1\xb5", place)
    if extension >= 0 and data[extension + 4] >> 4 == 8 and data[extension + 6] & 3 != 3:
        return PacketKind.UNSURE
    kind = data[place + 1] >> 3 & 7
    if kind == 3:
        return PacketKind.B_FRAME
    return (
        PacketKind.KEY if kind == 1 and 0 <= data.find(b"\0\0\1\xb3") < place else PacketKind.FRAME
    )


def _mpeg4(data: bytes) -> PacketKind:
    """Look at MPEG-4; AVI files may have two pictures in a packet, and none in the next."""
    place = data.find(b"\0\0\1\xb6")
    if place < 0 or data.find(b"\0\0\1\xb6", place + 4) >= 0:
        return PacketKind.UNSURE
    if len(data) - place < _MPEG4_BYTES_MIN:
        return PacketKind.UNSURE
    kind = data[place + 4] >> 6
    if kind == 2:
        return PacketKind.B_FRAME
    return PacketKind.FRAME if kind else PacketKind.KEY


def _msmpeg4(data: bytes) -> PacketKind:
    return PacketKind.FRAME if data[0] >> 6 else PacketKind.KEY


def _vp8(data: bytes) -> PacketKind:
    if not data[0] >> 4 & 1:
        return PacketKind.HIDDEN if data[0] & 1 else PacketKind.UNSURE
    return PacketKind.FRAME if data[0] & 1 else PacketKind.KEY


def _vp9(data: bytes) -> PacketKind:
    """Look at VP9; a packet may hold hidden frames in front of the one that is shown."""
    shown = 0
    is_key = False
    for frame in _vp9_frames(data):
        head = frame[0]
        if head >> 6 != 2:
            return PacketKind.UNSURE
        head <<= 1 if head >> 4 & 3 == 3 else 0  # the last profile has a bit more
        if head >> 3 & 1:  # one that is there already is shown
            shown += 1
            continue
        shown += head >> 1 & 1
        is_key = is_key or not head >> 2 & 1
    if shown != 1:
        return PacketKind.UNSURE if shown or is_key else PacketKind.HIDDEN
    return PacketKind.KEY if is_key else PacketKind.FRAME


def _vp9_frames(data: bytes) -> Iterator[bytes]:
    last = data[-1]
    count, width = (last & 7) + 1, (last >> 3 & 3) + 1
    index = len(data) - 2 - count * width
    if last >> 5 != 6 or index < 0 or data[index] != last:
        yield data
        return
    place = 0
    for number in range(count):
        at = index + 1 + number * width
        size = int.from_bytes(data[at : at + width], "little")
        if size:
            yield data[place : place + size]
        place += size


def _av1(data: bytes) -> PacketKind:
    """Look at AV1; a packet may hold hidden frames in front of the one that is shown."""
    shown = 0
    is_key = has_sequence = False
    for kind, body in _av1_units(data):
        has_sequence |= kind == 1
        if kind in (3, 6):
            head = body[0]
            is_shown = head >> 7 or head >> 4 & 1
            shown += is_shown
            is_key |= head >> 4 == 1  # not there already, key, shown
    if shown != 1:
        return PacketKind.UNSURE
    return PacketKind.KEY if is_key and has_sequence else PacketKind.FRAME


def _av1_units(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield units, without their header.

    Raises:
        ValueError: They have layers.
    """
    place = 0
    while place < len(data):
        head = data[place]
        if head >> 2 & 1:
            raise ValueError("a unit is of a layer")
        place += 1
        size = len(data) - place
        if head >> 1 & 1:
            size = shift = 0
            more = 1
            while more:
                size |= (data[place] & 127) << shift
                more, shift, place = data[place] >> 7, shift + 7, place + 1
        yield head >> 3 & 15, data[place : place + size]
        place += size


_NAL_UNITS: Final[dict[str, Callable[[bytes], Look]]] = {"h264": H264, "hevc": H265}
_LOOKS: Final[dict[str, Look]] = {
    "mpeg1video": _mpeg12,
    "mpeg2video": _mpeg12,
    "mpeg4": _mpeg4,
    "msmpeg4v3": _msmpeg4,
    "vp8": _vp8,
    "vp9": _vp9,
    "av1": _av1,
}
