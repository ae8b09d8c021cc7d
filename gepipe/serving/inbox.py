"""Memory in which a pre worker is handed its items: a socket would copy each six times.

stub ── item ──▶ inbox ──▶ worker         only places travel with the ticket
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from gepipe.errors import ItemError
from gepipe.runtime.memory import SharedBuffer
from gepipe.tensors import ALIGNMENT

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAST: Final = 1 << 20
#: Memory beyond this is given back when items are small again.
_KEPT: Final = 16 << 20


class Inbox:
    """Holds the items that a worker is given with one ticket. Used by one thread.

    Attributes:
        buffer: The memory; another one whenever there was not enough of it.
    """

    def __init__(self) -> None:
        self.buffer: SharedBuffer | None = None

    def put(self, values: Sequence[bytes | NDArray[Any]]) -> list[tuple[Any, ...]]:
        """Put items in place of those before; return what tells a reader where each lies.

        Raises:
            BackendError: There is not enough memory.
        """
        import numpy as np

        offsets, end = [], 0
        for value in values:
            offsets.append(end)
            size = len(value) if isinstance(value, bytes) else value.nbytes
            end += -(-size // ALIGNMENT) * ALIGNMENT
        memory = self._room_for(end).map
        places: list[tuple[Any, ...]] = []
        for value, offset in zip(values, offsets, strict=True):
            if isinstance(value, bytes):
                memory[offset : offset + len(value)] = value
                places.append((offset, len(value)))
            else:
                np.ndarray(value.shape, value.dtype, memory, offset)[...] = value
                places.append((offset, value.nbytes, value.dtype.str, value.shape))
        return places

    def close(self) -> None:
        """Free it. Closing twice is harmless."""
        if self.buffer is not None:
            self.buffer.close()
            self.buffer = None

    def _room_for(self, nbytes: int) -> SharedBuffer:
        size = 0 if self.buffer is None else self.buffer.nbytes
        if self.buffer is None or nbytes > size or (size > _KEPT and nbytes <= _KEPT):
            self.close()
            self.buffer = SharedBuffer.create(max(_LEAST, 1 << (nbytes - 1).bit_length()))
        return self.buffer


class InboxReader:
    """Gives a pre worker its items."""

    def __init__(self) -> None:
        self._buffer: SharedBuffer | None = None

    def attach(self, buffer: SharedBuffer) -> None:
        """Take memory in place of what was there before."""
        if self._buffer is not None:
            self._buffer.close()
        self._buffer = buffer

    def read(self, payload: tuple[Any, ...]) -> Any:
        """Return the bytes, or the array; it is not writable.

        Raises:
            ItemError: There is not a single byte.
        """
        assert self._buffer is not None
        offset, nbytes, *array = payload
        data = self._buffer.map[offset : offset + nbytes]
        if array:
            import numpy as np

            dtype, shape = array
            return np.frombuffer(data, dtype).reshape(shape)
        if not data:
            raise ItemError("empty", "the input is empty (0 bytes)")
        return data
