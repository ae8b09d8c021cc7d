"""Tensor descriptions and data types."""

from __future__ import annotations

import ctypes
import math
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gepipe.emulator.api import acl_call
from gepipe.emulator.handles import Site

if TYPE_CHECKING:
    from gepipe.emulator.machine import Machine

INVALID_PARAM = 100000
#: Bytes of each ACL data type; see `aclDataType` in `acl_base.h`.
SIZES: Final = {
    0: 4,
    1: 2,
    2: 1,
    3: 4,
    4: 1,
    6: 2,
    7: 2,
    8: 4,
    9: 8,
    10: 8,
    11: 8,
    12: 1,
    16: 8,
    17: 16,
    27: 2,
    29: 1,
    30: 1,
    33: 4,
}
_FORMATS: Final = {-1, 0, 1, 2, 3, 4, 12, 16, 27, 29, 30, 32, 33, 35, 47}


@dataclass(eq=False, slots=True)
class TensorDesc:
    """A type, a shape and a format."""

    dtype: int
    dims: tuple[int, ...]
    format: int
    name: str = ""
    owned: bool = True
    site: Site = field(default_factory=Site)

    def __str__(self) -> str:
        return f"tensor description made at {self.site}"

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.dims) * SIZES.get(self.dtype, 0)


def desc_of(machine: Machine, handle: int) -> TensorDesc | None:
    """Return a live tensor description, or None for 0."""
    if handle == 0:
        machine.fail(INVALID_PARAM, "tensor description is 0")
        return None
    found = machine.handles.get(handle, TensorDesc)
    if found is None:
        machine.misuse(f"tensor description {handle:#x} is {machine.handles.fate(handle)}")
    return found


@acl_call("create_tensor_desc", "iLi", "v")
def create_tensor_desc(machine: Machine, dtype: int, dims: list[int], form: int) -> int:
    """Describe a tensor; 0 on failure."""
    if not all(isinstance(each, int) for each in dims):
        raise TypeError("acl.create_tensor_desc args parse failed")
    if len(dims) > 128 or form not in _FORMATS:
        machine.fail(INVALID_PARAM, f"{len(dims)} dims in format {form}")
        return 0
    return machine.handles.add(TensorDesc(dtype, tuple(dims), form))


@acl_call("destroy_tensor_desc", "k", "n")
def destroy_tensor_desc(machine: Machine, handle: int) -> None:
    """Destroy a description that the program made."""
    if (desc := desc_of(machine, handle)) is None:
        return
    if not desc.owned:
        machine.misuse("this tensor description belongs to a dataset")
    machine.handles.remove(handle, f"{desc}, destroyed at {Site()}")


@acl_call("get_tensor_desc_type", "k", "v")
def get_tensor_desc_type(machine: Machine, handle: int) -> int:
    """Return the data type, -1 when there is none."""
    desc = desc_of(machine, handle)
    return -1 if desc is None else desc.dtype


@acl_call("get_tensor_desc_format", "k", "v")
def get_tensor_desc_format(machine: Machine, handle: int) -> int:
    """Return the format, -1 when there is none."""
    desc = desc_of(machine, handle)
    return -1 if desc is None else desc.format


@acl_call("get_tensor_desc_size", "k", "v")
def get_tensor_desc_size(machine: Machine, handle: int) -> int:
    """Return the bytes."""
    desc = desc_of(machine, handle)
    return 0 if desc is None else desc.nbytes


@acl_call("get_tensor_desc_element_count", "k", "v")
def get_tensor_desc_element_count(machine: Machine, handle: int) -> int:
    """Return the number of elements."""
    desc = desc_of(machine, handle)
    return 0 if desc is None else math.prod(desc.dims)


@acl_call("get_tensor_desc_num_dims", "k", "v")
def get_tensor_desc_num_dims(machine: Machine, handle: int) -> int:
    """Return the number of dims."""
    desc = desc_of(machine, handle)
    return 0 if desc is None else len(desc.dims)


@acl_call("get_tensor_desc_dim_v2", "kk", "vr")
def get_tensor_desc_dim_v2(machine: Machine, handle: int, index: int) -> tuple[int, int]:
    """Return one dim."""
    desc = desc_of(machine, handle)
    if desc is None or index >= len(desc.dims):
        return 0, machine.fail(INVALID_PARAM, f"there is no dim {index}")
    return desc.dims[index], 0


@acl_call("get_tensor_desc_dim", "kk", "v")
def get_tensor_desc_dim(machine: Machine, handle: int, index: int) -> int:
    """Return one dim, -1 when there is none."""
    desc = desc_of(machine, handle)
    return -1 if desc is None or index >= len(desc.dims) else desc.dims[index]


@acl_call("set_tensor_desc_name", "ks", "n")
def set_tensor_desc_name(machine: Machine, handle: int, name: str) -> None:
    """Name a description."""
    if (desc := desc_of(machine, handle)) is not None:
        desc.name = name


@acl_call("get_tensor_desc_name", "k", "v")
def get_tensor_desc_name(machine: Machine, handle: int) -> str:
    """Return a description's name."""
    desc = desc_of(machine, handle)
    return "" if desc is None else desc.name


@acl_call("set_tensor_const", "kkk")
def set_tensor_const(machine: Machine, handle: int, _ptr: int, _size: int) -> int:
    """Mark a tensor as constant, which means nothing here."""
    return INVALID_PARAM if desc_of(machine, handle) is None else 0


@acl_call("data_type_size", "i", "v")
def data_type_size(_machine: Machine, dtype: int) -> int:
    """Return the bytes of an element."""
    return SIZES.get(dtype, 0)


@acl_call("float16_to_float", "I", "v")
def float16_to_float(_machine: Machine, bits: int) -> float:
    """Return the number whose half-precision bits these are."""
    number: float = struct.unpack("<e", struct.pack("<H", bits & 0xFFFF))[0]
    return number


@acl_call("float_to_float16", "f", "v")
def float_to_float16(_machine: Machine, number: float) -> int:
    """Return a number's half-precision bits."""
    try:
        packed = struct.pack("<e", ctypes.c_float(number).value)
    except OverflowError:
        packed = struct.pack("<e", math.copysign(math.inf, number))
    bits: int = struct.unpack("<H", packed)[0]
    return bits
