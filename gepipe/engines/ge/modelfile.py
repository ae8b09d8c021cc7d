"""What a model file is, by its contents: so that a wrong one is refused with the right words.

The header of an `.om` file: 256 bytes, little endian; CANN `ge/common/om_file`.
"""

from __future__ import annotations

import json
import re
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gepipe.errors import ModelLoadError

_MAGIC: Final = b"IMOD"
_HEADER_BYTES: Final = 256
_EMULATOR_MAGIC: Final = b"gepipe emul om1\n"
_EMULATOR_HEAD: Final = struct.Struct("<16sQQ")
_SEARCHED_BYTES: Final = 4 << 20
_SOC: Final = re.compile(rb"soc_version.{0,8}?(Ascend[0-9A-Za-z_]+)", re.DOTALL)
_VERSION_2: Final = 0x20000000
_ONNX_WORDS: Final = (b"onnx", b"pytorch", b"ai.onnx", b"tf2onnx", b"paddle")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file that an `acl` may open.

    Attributes:
        path: Where it is.
        nbytes: Its size.
        emulated: Whether it is for the emulator.
        soc: The chip that it was converted for; empty where the file does not tell.
        is_shape_range: Whether it takes ranges of shapes; None where the file does not tell.
    """

    path: Path
    nbytes: int
    emulated: bool
    soc: str = ""
    is_shape_range: bool | None = None


def inspect(path: Path) -> ModelFile:
    """Look at a model file.

    Raises:
        ModelLoadError: It is missing or no `.om` model, and what it is instead.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its writer
            kind = "directory" if stat.S_ISDIR(status.st_mode) else "device, pipe or socket"
            raise ModelLoadError(f"{path} is a {kind}; expected an .om model file")
        with path.open("rb") as file:
            head = file.read(_HEADER_BYTES)
            if not head.startswith((_EMULATOR_MAGIC, _MAGIC)):
                raise _wrong(path, head)
            rest = file.read(_SEARCHED_BYTES)
    except OSError as error:
        raise ModelLoadError(f"{path}: {error.strerror}") from error
    if head.startswith(_EMULATOR_MAGIC):
        return _emulated(path, status.st_size, head + rest)
    return _checked(path, status.st_size, head, rest)


def _checked(path: Path, nbytes: int, head: bytes, rest: bytes) -> ModelFile:
    if len(head) < _HEADER_BYTES:
        raise _damaged(path, _HEADER_BYTES, nbytes)
    header_bytes, version = struct.unpack_from("<II", head, 4)
    (length,) = struct.unpack_from("<I", head, 76)
    (model_count,) = struct.unpack_from("<I", head, 156)
    (model_length,) = struct.unpack_from("<Q", head, 184)
    expected = (model_length or length) + header_bytes
    if nbytes != expected:
        raise _damaged(path, expected, nbytes)
    dynamic = version >= _VERSION_2 and (model_count > 1 or head[193] == 1)
    found = _SOC.search(rest)
    soc = found.group(1).decode() if found else ""
    return ModelFile(path, nbytes, emulated=False, soc=soc, is_shape_range=dynamic)


def _emulated(path: Path, nbytes: int, begin: bytes) -> ModelFile:
    if len(begin) < _EMULATOR_HEAD.size:
        raise _damaged(path, _EMULATOR_HEAD.size, nbytes)
    _, described, graph = _EMULATOR_HEAD.unpack_from(begin)
    expected = _EMULATOR_HEAD.size + described + graph
    if nbytes != expected:
        raise _damaged(path, expected, nbytes)
    try:
        soc = json.loads(begin[_EMULATOR_HEAD.size :][:described])["soc"]
    except (ValueError, KeyError, TypeError):
        soc = ""  # whoever opens it says what is wrong with it
    return ModelFile(path, nbytes, emulated=True, soc="" if soc == "emulator" else str(soc))


def _damaged(path: Path, expected: int, nbytes: int) -> ModelLoadError:
    return ModelLoadError(
        f"{path}: the .om file is damaged: its header tells of {expected} bytes, it has {nbytes}; "
        "copy it again"
    )


def _wrong(path: Path, head: bytes) -> ModelLoadError:
    convert = f"convert with `gepipe model convert {path}`"
    if not head:
        kind = "it is empty"
    elif head[:1] == b"\x08" and (any(word in head for word in _ONNX_WORDS) or path.suffix):
        kind = f"this is ONNX; {convert}"
    elif head.startswith((b"PK\x03\x04", b"\x80\x02", b"\x80\x05")):
        kind = f"this looks like a PyTorch checkpoint; export it to ONNX, then {convert}"
    elif head.lstrip().startswith((b"version https://git-lfs", b"<", b"{")):
        kind = "this is text, such as a Git LFS pointer or a web page; download the model itself"
    else:
        kind = f"unknown contents; expected what atc writes: {convert}"
    return ModelLoadError(f"{path}: not an .om model (model file is not .om format): {kind}")
