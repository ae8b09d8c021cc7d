"""Shared memory without names, and the layout of slots in it.

    link:  │ slot 0                          │ slot 1                          │ … depth slots
    slot:  │ tensor a (batch, …) │ tensor b (batch, …) │  page-aligned; each tensor 64-byte aligned

A link's memory is one memfd. It has no name, so nothing is left behind whoever dies, and it does
not count against a small /dev/shm. The supervisor creates it and hands its descriptor to workers;
it never looks inside.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gepipe.errors import BackendError
from gepipe.runtime.limits import told
from gepipe.tensors import ALIGNMENT, TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self


def _round_up(nbytes: int, multiple: int) -> int:
    return -(-nbytes // multiple) * multiple


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """Where the tensors of one slot lie.

    Attributes:
        batch: Rows in a slot.
        tensors: Specs of a whole batch, `(batch, …)`, all static.
        offsets: Start of each tensor in the slot, in bytes.
        slot_nbytes: Size of a slot, a multiple of the page size.
    """

    batch: int
    tensors: tuple[TensorSpec, ...]
    offsets: tuple[int, ...]
    slot_nbytes: int

    @classmethod
    def of(cls, rows: tuple[TensorSpec, ...], batch: int) -> SlotLayout:
        """Lay out `batch` rows of the given static row specs."""
        tensors = tuple(row.with_batch(batch) for row in rows)
        offsets, end = [], 0
        for tensor in tensors:
            offsets.append(end)
            end = _round_up(end + tensor.nbytes, ALIGNMENT)
        return cls(batch, tensors, tuple(offsets), _round_up(max(end, 1), mmap.PAGESIZE))

    def to_plain(self) -> tuple[Any, ...]:
        """Return plain values for a message; `from_plain` reads them."""
        specs = tuple((spec.name, spec.dtype, spec.shape) for spec in self.tensors)
        return self.batch, specs, self.offsets, self.slot_nbytes

    @classmethod
    def from_plain(cls, plain: tuple[Any, ...]) -> SlotLayout:
        """Rebuild a layout from `to_plain`."""
        batch, specs, offsets, slot_nbytes = plain
        return cls(batch, tuple(TensorSpec(*spec) for spec in specs), offsets, slot_nbytes)


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
        import numpy as np

        self.layout = layout
        self._buffer = buffer
        self._views: list[Mapping[str, NDArray[Any]]] = []
        for slot in range(buffer.nbytes // layout.slot_nbytes):
            start = slot * layout.slot_nbytes
            views = {}
            for spec, offset in zip(layout.tensors, layout.offsets, strict=True):
                # frombuffer, not ndarray(buffer=…): only the former keeps a hold on the map, so
                # that closing it under a live view is an error instead of a crash.
                count = spec.nbytes // np.dtype(spec.dtype).itemsize
                flat = np.frombuffer(buffer.map, spec.dtype, count, start + offset)
                views[spec.name] = flat.reshape(spec.shape)
            self._views.append(views)

    def __getitem__(self, slot: int) -> Mapping[str, NDArray[Any]]:
        """Name to (batch, …) array: views into the slot."""
        return self._views[slot]
