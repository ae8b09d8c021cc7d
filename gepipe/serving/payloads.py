"""What callers hand over, on its way to the pre workers, and what they get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from gepipe.errors import ItemError
from gepipe.pipeline.payloadstore import taken_out

#: The tensor of results, each as JSON text.
RESULT: Final = "RESULT"


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


@dataclass(frozen=True)
class PayloadReader:
    """Gives a pre worker what the caller handed over."""

    def read(self, payload: Any) -> Any:
        """Return the bytes, or the array; it is not writable.

        Raises:
            ItemError: There is not a single byte.
        """
        if isinstance(payload, bytes):
            if not payload:
                raise ItemError("empty", "the input is empty (0 bytes)")
            return payload
        import numpy as np

        dtype, shape, data = payload
        return np.frombuffer(taken_out(data), dtype).reshape(shape)
