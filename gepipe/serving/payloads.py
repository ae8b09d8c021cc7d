"""What callers hand over, on its way to the pre workers, and what they get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from gepipe.errors import ItemError

#: The tensor of results, each as JSON text.
RESULT: Final = "RESULT"


def to_payload(value: Any) -> Any:
    """Return bytes as they are, and an array as dtype, shape and a copy of its bytes."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value.dtype.str, value.shape, value.tobytes()


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
        return np.frombuffer(data, dtype).reshape(shape)
