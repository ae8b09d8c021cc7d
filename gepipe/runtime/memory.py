"""Shared memory without names, and the layout of slots in it.

    link:  │ slot 0                          │ slot 1                          │ … depth slots
    slot:  │ tensor a (batch, …) │ tensor b (batch, …) │  page-aligned; each tensor 64-byte aligned

Rows may have open extents. Then a tensor has memory for the largest, and a batch lies in it at its
own shape, contiguous and without padding: the shape travels with the tickets.

A link's memory is one memfd. It has no name, so nothing is left behind whoever dies, and it does
not count against a small /dev/shm. The supervisor creates it and hands its descriptor to workers;
it never looks inside.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from gepipe.errors import BackendError
from gepipe.runtime.limits import told
from gepipe.tensors import ALIGNMENT, TensorSpec
from gepipe.unshaped import UnshapedBuffer

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

#: Shape of a row of each tensor of a slot.
Shapes: TypeAlias = tuple[tuple[int, ...], ...]


def _round_up(nbytes: int, multiple: int) -> int:
    return -(-nbytes // multiple) * multiple


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """Where the tensors of one slot lie.

    Attributes:
        batch: Rows in a slot.
        tensors: Specs of a whole batch, `(batch, …)`; `DYNAMIC` where an extent of the rows is
            open.
        offsets: Start of each tensor in the slot, in bytes.
        capacities: Bytes that there are for each tensor.
        slot_nbytes: Size of a slot, a multiple of the page size.
    """

    batch: int
    tensors: tuple[TensorSpec, ...]
    offsets: tuple[int, ...]
    capacities: tuple[int, ...]
    slot_nbytes: int

    @classmethod
    def of(
        cls, rows: tuple[TensorSpec, ...], batch: int, largest: Sequence[int] = ()
    ) -> SlotLayout:
        """Lay out `batch` rows.

        Args:
            rows: Specs of the rows.
            batch: How many.
            largest: The most bytes that each row has; not needed where all extents are known.
        """
        tensors = tuple(row.with_batch(batch) for row in rows)
        sizes = tuple(largest) or tuple(row.nbytes for row in rows)
        offsets, end = [], 0
        for nbytes in sizes:
            offsets.append(end)
            end = _round_up(end + batch * nbytes, ALIGNMENT)
        capacities = tuple(batch * nbytes for nbytes in sizes)
        whole = _round_up(max(end, 1), mmap.PAGESIZE)
        return cls(batch, tensors, tuple(offsets), capacities, whole)

    @property
    def is_open(self) -> bool:
        """Whether the shape of a batch is not known before."""
        return not all(tensor.is_static for tensor in self.tensors)

    def to_plain(self) -> tuple[Any, ...]:
        """Return plain values for a message; `from_plain` reads them."""
        specs = tuple((spec.name, spec.dtype, spec.shape) for spec in self.tensors)
        return self.batch, specs, self.offsets, self.capacities, self.slot_nbytes

    @classmethod
    def from_plain(cls, plain: tuple[Any, ...]) -> SlotLayout:
        """Rebuild a layout from `to_plain`."""
        batch, specs, *rest = plain
        return cls(batch, tuple(TensorSpec(*spec) for spec in specs), *rest)


class SharedBuffer:
    """Bytes shared between processes. The kernel frees them with their last holder."""

    def __init__(self, fd: int, nbytes: int) -> None:
        self.nbytes = nbytes
        self.fd = fd
        self._map: mmap.mmap | None = None

    @classmethod
    def create(cls, nbytes: int) -> Self:
        """Allocate `nbytes`, zeroed, with the memory reserved now rather than at first touch.

        Raises:
            BackendError: There is not enough memory.
            WorkerStartError: There is no descriptor left.
        """
        with told("shared memory"):
            fd = os.memfd_create("gepipe", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            # Without the reservation a full machine would show as SIGBUS in some worker.
            os.posix_fallocate(fd, 0, nbytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        except OSError as error:
            os.close(fd)
            raise BackendError(
                f"shared memory: cannot reserve {nbytes / 2**20:.1f} MiB for slots: "
                f"{error.strerror}; use a smaller batch_size or depth"
            ) from error
        return cls(fd, nbytes)

    @classmethod
    def mapped(cls, fd: int, nbytes: int) -> Self:
        """Map memory at once and let go of its descriptor: the last view frees it."""
        buffer = cls(fd, nbytes)
        buffer._map = mmap.mmap(fd, nbytes)
        os.close(fd)
        buffer.fd = -1
        return buffer

    @property
    def map(self) -> mmap.mmap:
        """The bytes, mapped at first use."""
        if self._map is None:
            self._map = mmap.mmap(self.fd, self.nbytes)
        return self._map

    def close(self) -> None:
        """Unmap and close. Raises `BufferError` if a view is still alive. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        if self._map is not None:
            self._map.close()
            self._map = None


class Slots:
    """A worker's arrays over the slots of one link."""

    def __init__(self, buffer: SharedBuffer, layout: SlotLayout) -> None:
        self.layout = layout
        self._buffer = buffer
        self._views: list[Mapping[str, NDArray[Any]]] = []
        if not layout.is_open:
            rows = tuple(tensor.shape[1:] for tensor in layout.tensors)
            slots = range(buffer.nbytes // layout.slot_nbytes)
            self._views = [self._view(slot, rows) for slot in slots]

    def __getitem__(self, slot: int) -> Mapping[str, NDArray[Any]]:
        """Name to (batch, …) array: views into a slot of known shapes."""
        return self._views[slot]

    def view(self, slot: int, shapes: Shapes | None) -> Mapping[str, NDArray[Any]]:
        """Return name to (batch, …) array: views into the slot.

        Args:
            slot: Which.
            shapes: Shape of a row of each tensor; None where the layout knows them.

        Raises:
            TensorMismatchError: A tensor cannot have that shape.
            ItemError: There is no room for that shape.
        """
        if self._views:
            return self._views[slot]
        return {
            name: buffer.open(tuple(shape))
            for (name, buffer), shape in zip(self.unshaped(slot).items(), shapes or (), strict=True)
        }

    def row(self, slot: int, row: int) -> Mapping[str, NDArray[Any] | UnshapedBuffer]:
        """Return name to array of one row, or to memory for it where its shape is open."""
        if not self._views:
            return {name: buffer.part(row, row + 1) for name, buffer in self.unshaped(slot).items()}
        # The ellipsis keeps a row of rank 0 a view.
        return {name: view[row, ...] for name, view in self._views[slot].items()}

    def unshaped(self, slot: int) -> Mapping[str, UnshapedBuffer]:
        """Return name to memory for a batch of a shape that is yet to be settled."""
        layout, start = self.layout, slot * self.layout.slot_nbytes
        return {
            spec.name: UnshapedBuffer(self._memory(start + offset, nbytes), spec.row, layout.batch)
            for spec, offset, nbytes in zip(
                layout.tensors, layout.offsets, layout.capacities, strict=True
            )
        }

    def _view(self, slot: int, rows: Shapes) -> Mapping[str, NDArray[Any]]:
        pairs = zip(self.unshaped(slot).items(), rows, strict=True)
        return {name: buffer.open(row) for (name, buffer), row in pairs}

    def _memory(self, start: int, nbytes: int) -> NDArray[Any]:
        import numpy as np

        # frombuffer, not ndarray(buffer=…): only the former keeps a hold on the map, so that
        # closing it under a live view is an error instead of a crash.
        return np.frombuffer(self._buffer.map, np.uint8, nbytes, start)
