"""Reads a PyTorch state dict in the legacy stream format, without torch.

The stream is five pickles (magic number, protocol, system facts, the dict, the order of storages)
and then each storage as an int64 length and its raw values. Only the globals that a dict of
plain tensors needs are resolved, so a doctored file cannot run code here.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001


@dataclass(eq=False)
class _Storage:
    dtype: np.dtype[Any]
    count: int
    values: NDArray[Any] | None = None


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def rebuild(
        cls,
        storage: _Storage,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        *_: object,  # requires_grad and backward hooks
    ) -> _Tensor:
        return cls(storage, offset, shape, strides)

    def array(self) -> NDArray[Any]:
        """Return the tensor as an array of its own, after checking that it fits its storage."""
        values = self.storage.values
        if values is None:
            _refuse("a tensor's storage has no data")
        if len(self.strides) != len(self.shape) or min((0, *self.strides, *self.shape)) < 0:
            _refuse(f"bad tensor geometry: shape {self.shape}, strides {self.strides}")
        reach = sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))
        if not 0 <= self.offset <= self.offset + reach < max(len(values), 1):
            _refuse(f"a tensor of shape {self.shape} reaches outside its storage")
        steps = [step * values.itemsize for step in self.strides]
        view = np.lib.stride_tricks.as_strided(values[self.offset :], self.shape, steps)
        return np.array(view, order="C")


class _Unpickler(pickle.Unpickler):
    """Resolves the globals of a state dict and refuses all others."""

    allowed: ClassVar[Mapping[tuple[str, str], Any]] = {
        ("collections", "OrderedDict"): OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2"): _Tensor.rebuild,
        ("torch", "FloatStorage"): np.dtype("<f4"),
        ("torch", "LongStorage"): np.dtype("<i8"),
    }

    def __init__(self, stream: io.BytesIO, storages: dict[str, _Storage]) -> None:
        super().__init__(stream)
        self._storages = storages

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return self.allowed[module_name, global_name]
        except KeyError:
            _refuse(f"global {module_name}.{global_name} has no place in a state dict")

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _location, count, *view = pid
        if kind != "storage" or not isinstance(dtype, np.dtype) or any(view):
            _refuse(f"unknown persistent object {kind!r}")
        return self._storages.setdefault(str(key), _Storage(dtype, int(count)))


def _refuse(reason: str) -> NoReturn:
    raise pickle.UnpicklingError(f"torch state dict: {reason}")


def load(data: bytes) -> dict[str, NDArray[Any]]:
    """Return the tensors of a legacy state dict by name.

    Args:
        data: The whole file.

    Raises:
        pickle.UnpicklingError: The file is cut short, has another format, or wants a global that
            a dict of plain tensors does not need.
    """
    stream = io.BytesIO(data)
    storages: dict[str, _Storage] = {}

    def take() -> Any:
        try:
            return _Unpickler(stream, storages).load()
        except EOFError as error:
            raise pickle.UnpicklingError("torch state dict: the file is cut short") from error

    if take() != _MAGIC or take() != _PROTOCOL:
        _refuse("not the legacy stream format")
    if not take().get("little_endian", True):
        _refuse("written on a big-endian machine")
    state = take()
    for key in take():
        _read_storage(stream, storages[str(key)])
    if not isinstance(state, dict) or not all(isinstance(x, _Tensor) for x in state.values()):
        _refuse("the file holds something else than named tensors")
    return {str(name): tensor.array() for name, tensor in state.items()}


def _read_storage(stream: io.BytesIO, storage: _Storage) -> None:
    header = stream.read(8)
    count = struct.unpack("<q", header)[0] if len(header) == 8 else -1
    if count != storage.count:
        _refuse("the length of a storage is not the declared one")
    raw = stream.read(count * storage.dtype.itemsize)
    if len(raw) != count * storage.dtype.itemsize:
        _refuse("the file is cut short")
    storage.values = np.frombuffer(raw, storage.dtype)
