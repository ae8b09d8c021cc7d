"""Reads the tensors of a safetensors file, without the library of that name.

The file is an uint64 length, a JSON object of that length which maps each name to type, shape and
the bytes' place, and then the raw values.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1"}
_HEADER_MAX = 100_000_000


def load(data: bytes) -> dict[str, NDArray[Any]]:
    """Return the tensors by name, as views into `data`.

    Args:
        data: The whole file.

    Raises:
        ValueError: The file is cut short or damaged, or holds a type that is not known here.
    """
    length = struct.unpack_from("<Q", data)[0] if len(data) >= 8 else -1
    if not 0 < length <= min(len(data) - 8, _HEADER_MAX):
        _refuse("the file is cut short, or is of another format")
    values = memoryview(data)[8 + length :]
    try:
        header = json.loads(data[8 : 8 + length])
        return {
            name: _tensor(name, entry, values)
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise ValueError(f"safetensors: the header is damaged: {error}") from error


def _tensor(name: str, entry: Any, values: memoryview) -> NDArray[Any]:
    shape = [int(extent) for extent in entry["shape"]]
    first, last = entry["data_offsets"]
    if entry["dtype"] not in _DTYPES:
        _refuse(f"{name} is of type {entry['dtype']}; known: {', '.join(_DTYPES)}")
    dtype = np.dtype(_DTYPES[entry["dtype"]])
    if min(shape, default=0) < 0 or not 0 <= first <= last <= len(values):
        _refuse(f"{name} lies outside the file")
    if last - first != math.prod(shape) * dtype.itemsize:
        _refuse(f"{name} has {last - first} bytes, which is not what {shape} takes")
    return np.frombuffer(values[first:last], dtype).reshape(shape)


def _refuse(reason: str) -> NoReturn:
    raise ValueError(f"safetensors: {reason}")
