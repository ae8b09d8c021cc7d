"""`acl.util`: addresses of Python objects, and Python objects over addresses."""

from __future__ import annotations

import ctypes
import math
import sys
import warnings
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gepipe.emulator import native
from gepipe.emulator.api import acl_call

if TYPE_CHECKING:
    from gepipe.emulator.machine import Machine

#: NumPy's type numbers on Linux, which `ptr_to_numpy` takes.
_DTYPES: Final = {
    0: "bool",
    1: "int8",
    2: "uint8",
    3: "int16",
    4: "uint16",
    5: "int32",
    6: "uint32",
    7: "int64",
    8: "uint64",
    9: "int64",
    10: "uint64",
    11: "float32",
    12: "float64",
    14: "complex64",
    15: "complex128",
    23: "float16",
}


def address_of(data: bytes) -> int:
    """Return the address of a bytes object's payload."""
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


def _host_bytes(machine: Machine, ptr: int, size: int) -> int:
    """Return the real address of `size` bytes that the host may read."""
    if size > sys.maxsize:
        machine.misuse(f"{size} bytes at {ptr:#x}: the host cannot access them")
    block = machine.host.locate(ptr, size)
    if block is not None:
        if block.shift:
            machine.misuse(
                f"{ptr:#x} is {block}: the host cannot read it; copy it with acl.rt.memcpy first"
            )
        return ptr
    seen = machine.host.watched(ptr)
    if seen is not None:
        if seen.is_dead:
            machine.lenient(f"reading {seen.name} through its address after it was dropped")
        if ptr + size > seen.base + seen.size:
            room = seen.base + seen.size - ptr
            machine.misuse(f"reading {size} bytes where {seen.name} has only {room}")
        return ptr
    probe = ctypes.create_string_buffer(1)
    for end in (ptr, ptr + max(size, 1) - 1):
        if native.read_host(ctypes.addressof(probe), end, 1) != 1:
            machine.misuse(f"{size} bytes at {ptr:#x}: the host cannot access them")
    return ptr


@acl_call("util.bytes_to_ptr", "O", "v")
def bytes_to_ptr(machine: Machine, data: Any) -> int:
    """Return the address of the contents of bytes."""
    if type(data) is not bytes:
        raise ValueError("needs an byte as argument")
    address = address_of(data)
    machine.host.watch(address, len(data), f"a bytes object of {len(data)} bytes", data)
    return address


@acl_call("util.ptr_to_bytes", "kk", "v")
def ptr_to_bytes(machine: Machine, ptr: int, size: int) -> bytes:
    """Copy host memory."""
    address = _host_bytes(machine, ptr, size)
    return bytes((ctypes.c_char * size).from_address(address))


def _watch_array(machine: Machine, array: Any) -> int:
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    base, size = int(root.ctypes.data), int(root.nbytes)
    address = int(array.ctypes.data)
    if not base <= address < base + max(size, 1):  # a view with negative strides, or not contiguous
        base, size = address, int(array.nbytes)
    machine.host.watch(base, size, f"an ndarray of {size} bytes", root)
    return address


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(f"acl.util.{name} is deprecated, use {instead}", Warning, stacklevel=4)


def _array(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        raise ValueError("needs an ndarray as argument")  # noqa: TRY004 - as pyACL
    return value


@acl_call("util.numpy_to_ptr", "O", "v")
def numpy_to_ptr(machine: Machine, array: Any) -> int:
    """Return the address of an array's data."""
    if not _array(array).flags.c_contiguous:
        warnings.warn("acl.util.numpy_to_ptr: the array is not contiguous", Warning, stacklevel=3)
        machine.lenient("the array is not contiguous, so its address does not lead to its elements")
    _deprecated("numpy_to_ptr", "bytes_to_ptr")
    return _watch_array(machine, array)


@acl_call("util.numpy_contiguous_to_ptr", "O", "vv")
def numpy_contiguous_to_ptr(machine: Machine, array: Any) -> tuple[int, Any]:
    """Return the address of an array's data, after a copy if it is not contiguous."""
    _deprecated("numpy_contiguous_to_ptr", "bytes_to_ptr")
    contiguous = np.ascontiguousarray(_array(array))
    return _watch_array(machine, contiguous), contiguous


@acl_call("util.ptr_to_numpy", "kOi", "v")
def ptr_to_numpy(machine: Machine, ptr: int, shape: Any, number: int) -> Any:
    """Return an array over host memory."""
    if not isinstance(shape, tuple) or not all(isinstance(each, int) for each in shape):
        raise TypeError("acl.util.ptr_to_numpy args parse failed")
    if any(each < 0 for each in shape):
        raise ValueError("negative dimensions are not allowed")
    if number not in _DTYPES:
        raise ValueError(f"{number} is no NumPy type number")
    _deprecated("ptr_to_numpy", "ptr_to_bytes")
    dtype = np.dtype(_DTYPES[number])
    size = math.prod(shape) * dtype.itemsize
    address = _host_bytes(machine, ptr, size)
    raw = (ctypes.c_uint8 * max(size, 1)).from_address(address)
    array = np.frombuffer(memoryview(raw), np.uint8, size).view(dtype)
    return array.reshape(shape)
