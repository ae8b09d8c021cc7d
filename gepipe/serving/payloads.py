"""What callers hand over, on its way to the pre workers, and what they get."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gepipe.errors import ItemError
from gepipe.pipeline.payloadstore import taken_out
from gepipe.runtime.arena import Arena

if TYPE_CHECKING:
    from gepipe.runtime.memory import SharedBuffer

#: The tensor of results, each as JSON text.
RESULT: Final = "RESULT"
#: Payloads, in bytes, that travel as they are: the memory is dealt out in pages.
_SMALL: Final = 16 << 10
#: Most bytes of all payloads there; of what is free, the lowest is taken first.
_MEMORY: Final = 64 << 20


def to_payload(value: Any) -> Any:
    """Return bytes as they are, and an array as dtype, shape and a copy of its bytes."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value.dtype.str, value.shape, value.tobytes()


def nbytes_of(payload: Any) -> int:
    """Return the bytes of what `to_payload` has returned."""
    return len(payload if isinstance(payload, bytes) else payload[2])


def stored(payload: Any, put: Callable[[bytes], Any]) -> Any:
    """Return a payload with its bytes put elsewhere.

    Args:
        payload: What `to_payload` has returned.
        put: Puts them, and returns what stands for them.
    """
    if isinstance(payload, bytes):
        return put(payload)
    dtype, shape, data = payload
    return dtype, shape, put(data)


class PayloadMemory:
    """Memory in which pre workers find what is large: a socket copies each byte six times.

    What has no room there travels as it is. Safe in any thread.

    Attributes:
        buffer: The memory, for the workers.
    """

    def __init__(self) -> None:
        self._arena = Arena(_MEMORY)
        self._lock = threading.Lock()
        self._closed = False
        self.buffer = self._arena.memory

    def put(self, payload: Any) -> tuple[Any, int | None]:
        """Return what stands for a payload, and what it is to be dropped by; None for nothing."""
        size = nbytes_of(payload)
        if size <= _SMALL:
            return payload, None
        with self._lock:
            offset = None if self._closed else self._arena.allocate(size)
            if offset is None:
                return payload, None
            return stored(payload, partial(self._write, offset)), offset

    def drop(self, offset: int) -> None:
        """Let go of a payload: it may be written over."""
        with self._lock:
            self._arena.free(offset)

    def close(self) -> None:
        """Free it. Closing twice is harmless."""
        with self._lock:
            self._closed = True
            self._arena.close()

    def _write(self, offset: int, data: bytes) -> tuple[int, int]:
        self.buffer.map[offset : offset + len(data)] = data
        return offset, len(data)


class PayloadReader:
    """Gives a pre worker what the caller handed over."""

    def __init__(self) -> None:
        self._buffer: SharedBuffer | None = None

    def attach(self, buffer: SharedBuffer) -> None:
        """Take the memory of a `PayloadMemory`."""
        self._buffer = buffer

    def read(self, payload: Any) -> Any:
        """Return the bytes, or the array; it is not writable.

        Raises:
            ItemError: There is not a single byte.
        """
        match payload:
            case bytes():
                if not payload:
                    raise ItemError("empty", "the input is empty (0 bytes)")
                return payload
            case int(), int():
                return self._found(payload)
        import numpy as np

        dtype, shape, data = payload
        data = self._found(data) if len(data) == 2 and type(data) is tuple else taken_out(data)
        return np.frombuffer(data, dtype).reshape(shape)

    def _found(self, place: tuple[int, int]) -> bytes:
        """Return a copy: of an item that is cancelled, the memory goes to another at once."""
        assert self._buffer is not None
        offset, nbytes = place
        return self._buffer.map[offset : offset + nbytes]
