"""Reads the characters that a text recogniser knows out of its ONNX file.

PaddleOCR's exports carry them in the model's metadata, one a line, under the key `character`. Only
the outermost message of the file is walked (ModelProto of `onnx.proto`, in the wire format of
protocol buffers), so that no ONNX library is needed and the weights are skipped, not parsed.
"""

from __future__ import annotations

from collections.abc import Iterator

#: `repeated StringStringEntryProto metadata_props` of ModelProto, and the two fields of an entry.
_METADATA, _KEY, _VALUE = 14, 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def convert(data: bytes) -> bytes:
    """Return the characters as text, one a line, in the order of the model's classes.

    The class of the blank, which comes first, has no line; the space, which the model knows as its
    last class and the metadata leaves out, has one.

    Args:
        data: The ONNX file.

    Raises:
        ValueError: It is no ONNX file, or carries no characters.
    """
    text = metadata(data).get("character")
    if not text:
        raise ValueError("the model carries no characters in its metadata")
    return "".join(f"{line}\n" for line in [*text.rstrip("\n").split("\n"), " "]).encode()


def metadata(data: bytes) -> dict[str, str]:
    """Return the metadata of an ONNX file.

    Raises:
        ValueError: It is no ONNX file.
    """
    found = {}
    view = memoryview(data)
    for number, value in _fields(view):
        if number == _METADATA:
            entry = dict(_fields(value))
            key, text = (bytes(entry.get(field, b"")).decode() for field in (_KEY, _VALUE))
            found[key] = text
    return found


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield number and content of each field of a message that holds bytes; skip the others."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind, number = tag & 7, tag >> 3
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind, 0)
        if kind == _VARINT:
            _, at = _varint(data, at)
        elif kind == _BYTES:
            size, at = _varint(data, at)
        elif not size:
            raise ValueError(f"not an ONNX file: a field of the kind {kind}")
        if size > len(data) - at:
            raise ValueError("not a whole ONNX file: a field ends behind its end")
        if kind == _BYTES:
            yield number, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number that begins at `at`, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("not a whole ONNX file: a number does not end")
