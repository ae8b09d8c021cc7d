"""Tensors as all parts of gepipe describe them, and the one table of their data types.

The table maps a NumPy dtype name to what ONNX, Triton and ACL call the same type. Nothing else in
gepipe spells a data type of those three. This module does not import NumPy: the process that
supervises a run describes tensors but never touches one.

Sources of the codes: ONNX `TensorProto.DataType`; Triton `model_config.proto` `DataType`;
CANN `aclDataType` in `acl_base.h`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

#: Unknown or variable extent of an axis; on axis 0 of a model's tensor it is the batch.
DYNAMIC: Final = -1
#: Stands for a data type that is not known yet, between operators only.
UNKNOWN: Final = ""
#: Alignment of each tensor inside a slot, in bytes (one cache line, and what pyACL asks for).
ALIGNMENT: Final = 64


@dataclass(frozen=True, slots=True)
class DType:
    """One data type under each of its names.

    Attributes:
        name: NumPy's name.
        itemsize: Bytes an element.
        onnx: `TensorProto.DataType` code.
        triton: Name in a Triton model configuration, without the `TYPE_` prefix.
        acl: `aclDataType` code.
    """

    name: str
    itemsize: int
    onnx: int
    triton: str
    acl: int


_TABLE: Final = (
    DType("float32", 4, 1, "FP32", 0),
    DType("float16", 2, 10, "FP16", 1),
    DType("int8", 1, 3, "INT8", 2),
    DType("int32", 4, 6, "INT32", 3),
    DType("uint8", 1, 2, "UINT8", 4),
    DType("int16", 2, 5, "INT16", 6),
    DType("uint16", 2, 4, "UINT16", 7),
    DType("uint32", 4, 12, "UINT32", 8),
    DType("int64", 8, 7, "INT64", 9),
    DType("uint64", 8, 13, "UINT64", 10),
    DType("float64", 8, 11, "FP64", 11),
    DType("bool", 1, 9, "BOOL", 12),
)
DTYPES: Final = {dtype.name: dtype for dtype in _TABLE}
DTYPE_OF_ONNX: Final = {dtype.onnx: dtype for dtype in _TABLE}
DTYPE_OF_TRITON: Final = {dtype.triton: dtype for dtype in _TABLE}
DTYPE_OF_ACL: Final = {dtype.acl: dtype for dtype in _TABLE}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, data type and shape of a tensor.

    Attributes:
        name: The tensor's name in the model; empty where it has none.
        dtype: A NumPy dtype name from `DTYPES`.
        shape: Extents; `DYNAMIC` (-1) where the extent varies.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def row(self) -> TensorSpec:
        """The same tensor for one item: without the batch axis."""
        return TensorSpec(self.name, self.dtype, self.shape[1:])

    def with_batch(self, size: int) -> TensorSpec:
        """Put an axis of `size` rows in front of a row's shape."""
        return TensorSpec(self.name, self.dtype, (size, *self.shape))

    @property
    def is_static(self) -> bool:
        """Whether every extent is known."""
        return all(extent >= 0 for extent in self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes of a static tensor."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    def accepts(self, other: TensorSpec) -> bool:
        """Whether a tensor like `other` can stand here; dynamic extents fit anything."""
        return (
            self.dtype == other.dtype
            and len(self.shape) == len(other.shape)
            and all(
                mine == its or DYNAMIC in (mine, its)
                for mine, its in zip(self.shape, other.shape, strict=True)
            )
        )

    def filled(self, made: TensorSpec) -> TensorSpec:
        """Return it with its dynamic extents filled in from those of a tensor that it accepts."""
        pairs = zip(self.shape, made.shape, strict=True)
        shape = tuple(its if mine == DYNAMIC else mine for mine, its in pairs)
        return TensorSpec(self.name, self.dtype, shape)

    def __str__(self) -> str:
        extents = ", ".join("?" if extent == DYNAMIC else str(extent) for extent in self.shape)
        return f"{self.name or 'tensor'}: {self.dtype} [{extents}]"


@dataclass(frozen=True, slots=True)
class Variants:
    """The shapes that something of open extents takes on.

    Attributes:
        specs: Its largest: any other is no larger in each extent than one of these. An extent
            without a bound is `DYNAMIC`.
        complete: Whether there are no others.
        step: What height and width are multiples of.
    """

    specs: tuple[TensorSpec, ...]
    complete: bool = False
    step: int = 1

    @property
    def is_bounded(self) -> bool:
        """Whether no extent can grow without end."""
        return all(spec.is_static for spec in self.specs)
