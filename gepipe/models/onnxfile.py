"""What an ONNX file says of itself, read from its bytes without any library.

Only the fields that are asked for are looked at and weights are skipped, so that a model of
several gigabytes is described at once. ONNX is a protobuf message; the numbers below are those of
`onnx.proto`.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from gepipe.errors import ModelLoadError
from gepipe.tensors import DTYPE_OF_ONNX

_VARINT, _I64, _LENGTH, _I32 = 0, 1, 2, 5
#: Types that no engine of gepipe takes, by their ONNX codes.
_OTHER_TYPES: Final = {8: "string", 14: "complex64", 15: "complex128", 16: "bfloat16"}
_EXTERNAL: Final = 1

Buffer: TypeAlias = "mmap.mmap | bytes"
#: (first byte, end) of a message, or the value of a number.
Field: TypeAlias = "tuple[int, int, int, int]"


@dataclass(frozen=True, slots=True)
class OnnxTensor:
    """An input or output of a graph.

    Attributes:
        name: Its name.
        dtype: NumPy's name of its type, or ONNX's where NumPy has none.
        shape: Extents; a name, or -1, where the graph leaves one open.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """What an ONNX file says of itself.

    Attributes:
        path: Where it is.
        nbytes: Its size, without weights in other files.
        ir_version: Version of the format.
        producer: Who wrote it, such as `pytorch 2.4`.
        opset: Version of the standard operators.
        domains: Other operator sets and their versions.
        node_count: Operators of the graph.
        inputs: What the graph takes, without its weights.
        outputs: What it makes.
        external: Files beside it that hold weights.
    """

    path: Path
    nbytes: int
    ir_version: int
    producer: str
    opset: int
    domains: tuple[tuple[str, int], ...]
    node_count: int
    inputs: tuple[OnnxTensor, ...]
    outputs: tuple[OnnxTensor, ...]
    external: tuple[str, ...]


def read_onnx(path: Path) -> OnnxFile:
    """Read an ONNX file.

    Raises:
        ModelLoadError: It is missing, or damaged.
    """
    try:
        with path.open("rb") as file:
            nbytes = path.stat().st_size
            if not nbytes:
                raise ModelLoadError(f"{path}: the file is empty; expected an ONNX model")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _read(data, path, nbytes)
    except OSError as error:
        raise ModelLoadError(f"{path}: {error.strerror}") from error
    except (ValueError, IndexError) as error:
        raise ModelLoadError(
            f"{path}: the ONNX file is damaged or cut off: {error}; copy or export it again"
        ) from error


def looks_like_onnx(head: Buffer, nbytes: int) -> bool:
    """Whether a file is an ONNX model.

    Args:
        head: Its first bytes.
        nbytes: Its size.
    """
    has_version = False
    try:
        for number, wire, _, _ in _fields(head, 0, nbytes):
            if wire != (_VARINT if number in (1, 5) else _LENGTH) or number > 26:
                return False
            has_version = has_version or number == 1
            if number == 7:  # the graph
                return has_version
    except (ValueError, IndexError):
        pass
    return False


def _read(data: Buffer, path: Path, nbytes: int) -> OnnxFile:
    ir_version, graph, names = 0, (0, 0), ["", ""]
    opsets: list[tuple[str, int]] = []
    for number, wire, first, end in _fields(data, 0, len(data)):
        if number == 1 and wire == _VARINT:
            ir_version = first
        elif number in (2, 3):
            names[number - 2] = _text(data, first, end)
        elif number == 7:
            graph = (first, end)
        elif number == 8:
            opsets.append(_opset(data, first, end))
    if graph == (0, 0):
        raise ValueError("there is no graph in it")
    inputs, outputs, weights = [], [], set()
    external: set[str] = set()
    nodes = 0
    for number, _, first, end in _fields(data, *graph):
        if number == 1:
            nodes += 1
        elif number == 5:
            name, places = _weight(data, first, end)
            weights.add(name)
            external |= places
        elif number == 11:
            inputs.append(_tensor(data, first, end))
        elif number == 12:
            outputs.append(_tensor(data, first, end))
    standard = [version for domain, version in opsets if domain in ("", "ai.onnx")]
    return OnnxFile(
        path,
        nbytes,
        ir_version,
        " ".join(filter(None, names)),
        max(standard, default=0),
        tuple((domain, version) for domain, version in opsets if domain not in ("", "ai.onnx")),
        nodes,
        tuple(tensor for tensor in inputs if tensor.name not in weights),
        tuple(outputs),
        tuple(sorted(external)),
    )


def _fields(data: Buffer, first: int, end: int) -> Iterator[Field]:
    """Yield number, wire type, and the extent of each field; of a number, its value first."""
    while first < end:
        key, first = _varint(data, first, end)
        number, wire = key >> 3, key & 7
        if not number:  # as where a file goes on with zeros
            raise ValueError(f"there is no field 0, as at byte {first}")
        if wire == _VARINT:
            value, first = _varint(data, first, end)
            yield number, wire, value, first
            continue
        if wire == _LENGTH:
            length, first = _varint(data, first, end)
        elif wire in (_I64, _I32):
            length = 8 if wire == _I64 else 4
        else:
            raise ValueError(f"unknown wire type {wire} at byte {first}")
        if first + length > end:
            raise ValueError(f"a field at byte {first} ends beyond its message")
        yield number, wire, first, first + length
        first += length


def _varint(data: Buffer, first: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while first < end and shift < 70:
        byte = data[first]
        first += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, first
        shift += 7
    raise ValueError(f"a number does not end at byte {first}")


def _text(data: Buffer, first: int, end: int) -> str:
    return bytes(data[first:end]).decode("utf-8", "replace")


def _opset(data: Buffer, first: int, end: int) -> tuple[str, int]:
    domain, version = "", 0
    for number, wire, start, stop in _fields(data, first, end):
        if number == 1 and wire == _LENGTH:
            domain = _text(data, start, stop)
        elif number == 2 and wire == _VARINT:
            version = start
    return domain, version


def _weight(data: Buffer, first: int, end: int) -> tuple[str, set[str]]:
    """Return a weight's name, and the files that hold it if it is not in this one."""
    name, places, is_external = "", set(), False
    for number, wire, start, stop in _fields(data, first, end):
        if number == 8 and wire == _LENGTH:
            name = _text(data, start, stop)
        elif number == 13 and wire == _LENGTH:
            entry = {n: _text(data, s, e) for n, w, s, e in _fields(data, start, stop) if w == 2}
            if entry.get(1) == "location":
                places.add(entry.get(2, ""))
        elif number == 14 and wire == _VARINT:
            is_external = start == _EXTERNAL
    return name, places if is_external else set()


def _tensor(data: Buffer, first: int, end: int) -> OnnxTensor:
    name, kind, dtype = "", "unknown", 0
    shape: tuple[int | str, ...] = ()
    for number, wire, start, stop in _fields(data, first, end):
        if number == 1 and wire == _LENGTH:
            name = _text(data, start, stop)
        elif number == 2 and wire == _LENGTH:
            for inner, _, s, e in _fields(data, start, stop):
                kind = {1: "tensor", 4: "sequence", 5: "map"}.get(inner, "unknown")
                if inner == 1:
                    dtype, shape = _tensor_type(data, s, e)
    if kind != "tensor":
        return OnnxTensor(name, kind, ())
    known = DTYPE_OF_ONNX.get(dtype)
    return OnnxTensor(name, known.name if known else _OTHER_TYPES.get(dtype, "unknown"), shape)


def _tensor_type(data: Buffer, first: int, end: int) -> tuple[int, tuple[int | str, ...]]:
    dtype = 0
    shape: list[int | str] = []
    for number, wire, start, stop in _fields(data, first, end):
        if number == 1 and wire == _VARINT:
            dtype = start
        elif number == 2 and wire == _LENGTH:
            shape = [_extent(data, s, e) for n, _, s, e in _fields(data, start, stop) if n == 1]
    return dtype, tuple(shape)


def _extent(data: Buffer, first: int, end: int) -> int | str:
    for number, wire, start, stop in _fields(data, first, end):
        if number == 1 and wire == _VARINT:
            return start if start < 2**63 else -1
        if number == 2 and wire == _LENGTH and stop > start:
            return _text(data, start, stop)
    return -1
