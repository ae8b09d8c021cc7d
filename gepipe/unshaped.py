"""Memory for a tensor whose shape is settled by whoever writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gepipe.errors import ItemError, TensorMismatchError
from gepipe.tensors import DYNAMIC, TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray


class UnshapedBuffer:
    """Memory for the rows [first, last) of one tensor of a batch, all of one shape.

    Attributes:
        spec: Name, data type and open shape of a row.
        largest: The most bytes that a row may have.
        row: Shape of a row, once it is settled.
    """

    def __init__(self, memory: NDArray[Any], spec: TensorSpec, batch: int) -> None:
        """Describe the memory.

        Args:
            memory: Bytes of the whole batch, uint8, aligned for the data type.
            spec: A row.
            batch: Rows of the batch.
        """
        self.spec = spec
        self.largest = memory.nbytes // batch
        self.row: tuple[int, ...] | None = None
        self._memory = memory
        self._batch = batch
        self._rows = slice(0, batch)

    @property
    def dtype(self) -> str:
        """Name of the data type."""
        return self.spec.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a row, `DYNAMIC` where it is open."""
        return self.spec.shape

    def part(self, first: int, last: int) -> UnshapedBuffer:
        """Return the memory of some of the rows."""
        part = UnshapedBuffer(self._memory, self.spec, self._batch)
        part._rows = slice(first, last)
        return part

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Whether a row of this shape fits the tensor, be there memory for it or not."""
        return len(shape) == len(self.shape) and all(
            mine in (DYNAMIC, its) for mine, its in zip(self.shape, shape, strict=True)
        )

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Return the bytes of a row of this shape."""
        return TensorSpec(self.spec.name, self.dtype, shape).nbytes

    def open(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """Settle the shape of a row, and return the rows at that shape, contiguous.

        Raises:
            ItemError: There is not so much memory.
            TensorMismatchError: The tensor never has such a shape.
        """
        if not self.takes(shape):
            raise TensorMismatchError(f"{self.spec} cannot have rows of shape {list(shape)}")
        if self.nbytes(shape) > self.largest:
            raise ItemError(
                "too_large",
                f"{self.spec.name!r} would be {self.dtype} {list(shape)}, {self.nbytes(shape):,} "
                f"bytes; the batch has room for {self.largest:,}; make its items smaller, as with "
                "max_side of resize",
            )
        self.row = shape
        used = self._memory[: self._batch * self.nbytes(shape)]
        return used.view(self.dtype).reshape(self._batch, *shape)[self._rows]

    def one(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """Settle the shape of a row, and return the first of the rows; for a part of one."""
        row: NDArray[Any] = self.open(shape)[0, ...]
        return row
