"""Tells model files apart by their contents, whatever their names say."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final, Literal

from gepipe.errors import ConfigError, ModelLoadError
from gepipe.models.onnxfile import looks_like_onnx

Kind = Literal["onnx", "om", "emulator", "other"]

_LOOKED_AT: Final = 1 << 16
_CHECKPOINT: Final = "this looks like a PyTorch checkpoint; export it to ONNX first"
#: How files begin, what they are then, and how to call that.
_FIRST: Final[tuple[tuple[bytes, Kind, str], ...]] = (
    (b"IMOD", "om", "this is an .om model for Ascend NPUs"),
    (b"gepipe emul om1\n", "emulator", "this is an .om model for the emulator"),
    (
        b"version https://git-lfs",
        "other",
        "this is a Git LFS pointer; fetch the model itself with `git lfs pull`",
    ),
    (b"PK\x03\x04", "other", _CHECKPOINT),
    (b"\x80\x02", "other", _CHECKPOINT),
    (b"\x80\x04", "other", _CHECKPOINT),
    (b"\x80\x05", "other", _CHECKPOINT),
)


def kind_of(path: Path) -> tuple[Kind, str]:
    """Return what a file is, and how to call it in a sentence.

    Raises:
        ConfigError: There is no such file, or it is none that can be read.
    """
    try:
        if path.is_dir():
            raise ConfigError(f"{path} is a folder; expected a model file")
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{path} is a device, pipe or socket; expected a model file")
        with path.open("rb") as file:
            head = file.read(_LOOKED_AT)
            nbytes = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such model file") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path} cannot be read: {why.lower()}") from error
    for first, kind, words in _FIRST:
        if head.startswith(first):
            return kind, words
    if not head:
        return "other", "the file is empty"
    if looks_like_onnx(head, nbytes):
        return "onnx", "this is ONNX"
    if head[4:8] == b"TFL3":
        return "other", "this is a TensorFlow Lite model; export it to ONNX first"
    if head.lstrip().startswith((b"<", b"{")):
        return "other", "this is text, such as a web page; download the model itself"
    return "other", "its contents are unknown"


def require_onnx(path: Path) -> None:
    """Refuse what is no ONNX model.

    Raises:
        ConfigError: There is no such file, or it is none that can be read.
        ModelLoadError: Says what it is instead, and what to do.
    """
    kind, words = kind_of(path)
    if kind == "onnx":
        return
    advice = {
        "om": "; it is converted already: run it with `backend: ge`",
        "emulator": "; it is converted already: run it with `backend: ge` and GEPIPE_ACL=emulator",
    }
    raise ModelLoadError(f"{path}: not an ONNX model: {words}{advice.get(kind, '')}")


def require_om(path: Path) -> Kind:
    """Refuse what is no `.om` model; return whether it is for cards or for the emulator.

    Raises:
        ConfigError: There is no such file, or it is none that can be read.
        ModelLoadError: Says what it is instead, and what to do.
    """
    kind, words = kind_of(path)
    if kind in ("om", "emulator"):
        return kind
    if kind == "onnx":
        source = path if path.suffix != ".om" else path.with_suffix(".onnx")
        rename = "" if source == path else f"rename it to {source.name} and "
        words += f"; {rename}convert with `gepipe model convert {source}`"
    raise ModelLoadError(f"{path}: not an .om model: {words}")
