"""The header of an `.om` file for real cards: 256 bytes, then a table of partitions.

Layout: CANN `ge/common/om_file`, little endian. What the partitions hold is Huawei's affair: the
inputs and outputs of such a model are known to the device that opens it.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gepipe.errors import ModelLoadError

MAGIC: Final = b"IMOD"
HEADER_BYTES: Final = 256
_MODEL_TYPES: Final = {0: "IR", 1: "standard", 2: "tiny", 3: "flow", 4: "lite", 5: "bundle"}
_PARTITIONS: Final = {
    0: "MODEL_DEF", 1: "WEIGHTS", 2: "TASK_INFO", 3: "TBE_KERNELS", 4: "CUST_AICPU",
    5: "SO_BINS", 8: "MODEL_INOUT_INFO", 9: "STATIC_TASK_DESC", 10: "DYNAMIC_TASK_DESC",
}  # fmt: skip
_MOST_PARTITIONS: Final = 64
_SEARCHED_BYTES: Final = 4 << 20
_SOC: Final = re.compile(rb"soc_version.{0,8}?(Ascend[0-9A-Za-z_]+)", re.DOTALL)
_VERSION_2: Final = 0x20000000


@dataclass(frozen=True, slots=True)
class Partition:
    """A part of the file behind the header.

    Attributes:
        kind: What it holds, as CANN calls it.
        offset: Where it begins behind the table.
        nbytes: Its size.
    """

    kind: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class OmHeader:
    """What the header of an `.om` file says.

    Attributes:
        name: The model's name, if the header has it.
        version: Version of the format, such as `2.0`.
        model_type: standard, bundle, …
        model_count: Models in the file.
        is_dynamic: Whether it is for ranges of shapes.
        is_encrypted: Whether its contents are encrypted.
        platform: Version of the platform that it was made for, if the header has it.
        soc: The chip it was made for, if the file tells in plain text.
        nbytes: Size of the file.
        partitions: Its parts; empty where the table could not be read.
    """

    name: str
    version: str
    model_type: str
    model_count: int
    is_dynamic: bool
    is_encrypted: bool
    platform: str
    soc: str
    nbytes: int
    partitions: tuple[Partition, ...]


def read_header(path: Path) -> OmHeader:
    """Read the header of an `.om` file for real cards.

    Raises:
        ModelLoadError: It cannot be read, or is cut off.
    """
    try:
        with path.open("rb") as file:
            nbytes = path.stat().st_size
            head = file.read(HEADER_BYTES)
            rest = file.read(_SEARCHED_BYTES)
    except OSError as error:
        raise ModelLoadError(f"{path}: {error.strerror}") from error
    if len(head) < HEADER_BYTES or not head.startswith(MAGIC):
        raise ModelLoadError(
            f"{path}: the .om file is cut off: it has {nbytes} bytes, its header alone has "
            f"{HEADER_BYTES}"
        )
    _, version = struct.unpack_from("<II", head, 4)
    (length,) = struct.unpack_from("<I", head, 76)
    (model_count,) = struct.unpack_from("<I", head, 156)
    (model_length,) = struct.unpack_from("<Q", head, 184)
    expected = HEADER_BYTES + (model_length or length)
    if nbytes != expected:
        raise ModelLoadError(
            f"{path}: the .om file is damaged: its header tells of {expected:,} bytes, it has "
            f"{nbytes:,}; copy it again"
        )
    found = _SOC.search(rest)
    return OmHeader(
        _text(head[84:116]),
        f"{version >> 28}.{version >> 20 & 0xFF}",
        _MODEL_TYPES.get(head[82], str(head[82])),
        max(1, model_count),
        version >= _VERSION_2 and (model_count > 1 or head[193] == 1),
        bool(head[80]),
        _text(head[160:180]),
        found.group(1).decode() if found else "",
        nbytes,
        _partitions(rest, nbytes - HEADER_BYTES),
    )


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace").strip()


def _partitions(rest: bytes, payload: int) -> tuple[Partition, ...]:
    if len(rest) < 8:
        return ()
    (count,) = struct.unpack_from("<I", rest)
    if not 0 < count <= _MOST_PARTITIONS or len(rest) < 8 + 24 * count:
        return ()
    found = []
    for place in range(count):
        kind, offset, nbytes = struct.unpack_from("<IxxxxQQ", rest, 8 + 24 * place)
        if offset + nbytes > payload:
            return ()
        found.append(Partition(_PARTITIONS.get(kind, f"type {kind}"), offset, nbytes))
    return tuple(found)
