"""What packets of H.264 and H.265 hold, seen from the headers of their units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gepipe.video.packetkind import PacketKind

_START: Final = b"\0\0\1"
#: Profiles of H.264 whose sequence header has the fields of the high ones.
_HIGH: Final = frozenset({100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135})

#: Units of H.264 with partitions of data, ends of sequences, further layers.
_UNUSUAL: Final = sum(1 << kind for kind in (2, 3, 4, 10, 11, 20, 21))


class _Bits:
    """Reads fields of a header, from its first bit on."""

    def __init__(self, data: bytes) -> None:
        plain = data.replace(b"\0\0\3", b"\0\0")
        self._value = int.from_bytes(plain, "big")
        self._left = 8 * len(plain)

    def take(self, bits: int) -> int:
        self._left -= bits
        if self._left < 0:
            raise ValueError("the header ends early")
        return self._value >> self._left & ((1 << bits) - 1)

    def number(self) -> int:
        """Take a number of variable length; signed ones only need to be passed over."""
        zeros = 0
        while not self.take(1):
            zeros += 1
        return (1 << zeros) - 1 + self.take(zeros)


class H264:
    """Looks into packets of H.264."""

    def __init__(self, extradata: bytes) -> None:
        """Take what the container says of the codec: an `avcC` record, units, or nothing."""
        self._prefix = (extradata[4] & 3) + 1 if extradata[:1] == b"\1" else 0
        self._are_frames: dict[bytes, bool] = {}  # by sequence header
        if self._prefix:
            place = 6
            for _ in range(extradata[5] & 31):
                size = int.from_bytes(extradata[place : place + 2], "big")
                self._learn(extradata[place + 2 : place + 2 + size])
                place += 2 + size
        else:
            for unit in _units(extradata, 0):
                if unit[0] & 31 == 7:
                    self._learn(unit)

    def __call__(self, data: bytes) -> PacketKind:
        """Return what a packet holds."""
        pictures = kinds = 0
        is_between = False
        for unit in _units(data, self._prefix):
            kind = unit[0] & 31
            kinds |= 1 << kind
            if kind in (1, 5):
                pictures += unit[1] >> 7  # its first macroblock is the picture's
                is_between |= unit[1] >> 4 == 0b1010 or unit[1] >> 2 == 0b100111  # type 1 or 6
            elif kind == 7:
                self._learn(unit)
        if kinds & _UNUSUAL or pictures != 1:
            return PacketKind.UNSURE
        if not self._are_frames or not all(self._are_frames.values()):
            return PacketKind.UNSURE
        if is_between:  # AVI files say that it is shown when it is stored
            return PacketKind.B_FRAME
        return PacketKind.KEY if kinds & 1 << 5 and not kinds & 1 << 1 else PacketKind.FRAME

    def _learn(self, unit: bytes) -> None:
        if unit not in self._are_frames:
            self._are_frames[unit] = _has_frames_only(unit)


class H265:
    """Looks into packets of H.265."""

    def __init__(self, extradata: bytes) -> None:
        """Take what the container says of the codec: an `hvcC` record, units, or nothing."""
        is_record = len(extradata) > 22 and extradata[:3] != _START and extradata[:4] != b"\0\0\0\1"
        self._prefix = (extradata[21] & 3) + 1 if is_record else 0
        self._show_all: dict[bytes, bool] = {}  # by picture header
        if not is_record:
            units = list(_units(extradata, 0))
        else:
            units, place = [], 23
            for _ in range(extradata[22]):
                count = int.from_bytes(extradata[place + 1 : place + 3], "big")
                place += 3
                for _ in range(count):
                    size = int.from_bytes(extradata[place : place + 2], "big")
                    units.append(extradata[place + 2 : place + 2 + size])
                    place += 2 + size
        for unit in units:
            if unit[0] >> 1 & 63 == 34:
                self._learn(unit)

    def __call__(self, data: bytes) -> PacketKind:
        """Return what a packet holds."""
        pictures = 0
        is_key = is_other = False
        for unit in _units(data, self._prefix):
            kind, layer = unit[0] >> 1 & 63, (unit[0] & 1) << 5 | unit[1] >> 3
            if layer:
                continue  # another view, which is not decoded
            if kind < 32:
                pictures += unit[2] >> 7  # the first segment of a picture
                is_key |= 19 <= kind <= 21
                is_other |= not 19 <= kind <= 21
                if 16 <= kind <= 18:  # a link that is broken: what leads it is not shown
                    return PacketKind.UNSURE
            elif kind == 34:
                self._learn(unit)
            elif kind in (36, 37):  # the end of a sequence, behind which a new one begins
                return PacketKind.UNSURE
        if pictures != 1 or not self._show_all or not all(self._show_all.values()):
            return PacketKind.UNSURE
        return PacketKind.KEY if is_key and not is_other else PacketKind.FRAME

    def _learn(self, unit: bytes) -> None:
        if unit not in self._show_all:
            bits = _Bits(unit[2:32])
            bits.number(), bits.number(), bits.take(1)
            self._show_all[unit] = not bits.take(1)


def _units(data: bytes, prefix: int) -> Iterator[bytes]:
    """Yield units, with their header, whose length or a start code is in front of each.

    Raises:
        ValueError: They do not fill the packet.
    """
    if not prefix:
        place = data.find(_START)
        while place >= 0:
            place += 3
            following = data.find(_START, place)
            yield data[place : following if following >= 0 else None]
            place = following
        return
    place = 0
    while place < len(data):
        size = int.from_bytes(data[place : place + prefix], "big")
        place += prefix + size
        if not size or place > len(data):
            raise ValueError("a unit has a wrong length")
        yield data[place - size : place]


def _has_frames_only(unit: bytes) -> bool:
    """Whether a sequence header of H.264 says that pictures are frames, and never fields."""
    bits = _Bits(unit[1:])
    profile = bits.take(8)
    bits.take(16)
    bits.number()
    if profile in _HIGH:
        _pass_high(bits)
    bits.number()
    order = bits.number()
    if order == 0:
        bits.number()
    elif order == 1:
        bits.take(1)
        bits.number(), bits.number()
        for _ in range(bits.number()):
            bits.number()
    bits.number()
    bits.take(1)
    bits.number(), bits.number()
    return bool(bits.take(1))


def _pass_high(bits: _Bits) -> None:
    chroma = bits.number()
    if chroma == 3:
        bits.take(1)
    bits.number(), bits.number(), bits.take(1)
    if not bits.take(1):
        return
    for index in range(12 if chroma == 3 else 8):
        if not bits.take(1):
            continue
        last = scale = 8
        for _ in range(16 if index < 6 else 64):
            if scale:
                code = bits.number()
                scale = (last + ((code + 1) // 2 if code & 1 else -(code // 2))) % 256
            last = scale or last
