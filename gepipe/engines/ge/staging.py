"""Memory of the host that the device copies from and to by itself."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gepipe.engines.ge.runtime import Acl
from gepipe.tensors import ALIGNMENT

if TYPE_CHECKING:
    from numpy.typing import NDArray


class PinnedBuffer:
    """Host memory that the device copies from and to by itself.

    `memcpy_async` needs memory of `malloc_host` on a 64-byte boundary. A slot in shared memory is
    none: the manual offers `host_register` for kernels that read host memory, not for copies.

    Attributes:
        address: Of its first byte.
        nbytes: Its size.
    """

    def __init__(self, acl: Acl, nbytes: int) -> None:
        self._acl = acl
        self.nbytes = nbytes
        self._base: int = acl.malloc_host(nbytes)
        if self._base % ALIGNMENT:  # only where the process runs on the device itself
            acl.free_host(self._base)
            self._base = acl.malloc_host(nbytes + ALIGNMENT)
        self.address = -(-self._base // ALIGNMENT) * ALIGNMENT

    def view(self, dtype: str, shape: Sequence[int]) -> NDArray[Any]:
        """Return its first bytes as an array; not to be used after `close`."""
        import numpy as np

        kind: np.dtype[Any] = np.dtype(dtype)
        count = 1
        for extent in shape:
            count *= extent
        raw: Any = (ctypes.c_uint8 * (count * kind.itemsize)).from_address(self.address)
        return np.frombuffer(raw, np.uint8).view(kind).reshape(shape)

    def close(self) -> None:
        """Free it. Closing twice is harmless."""
        base, self._base = self._base, 0
        if base:
            self._acl.free_host(base)
