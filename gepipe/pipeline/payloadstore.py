"""Large inputs that live in the program itself, put where the workers of later models find them.

A picture that a program hands over as bytes travels to the first model's worker; its parts would
take it along once more each. Instead they take along where it lies.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, Final

from gepipe.errors import ItemError
from gepipe.runtime.limits import told

#: Payloads, in bytes, that travel as they are.
_SMALL: Final = 16 << 10
#: Payloads, and bytes of them, that share a descriptor: hundreds of items may be on their way, and
#: a process has a thousand descriptors by default.
_SHARED: Final = 32
_SHARED_NBYTES: Final = 16 << 20
_MARK: Final = "gepipe.payload"


class PayloadStore:
    """Payloads by item. Each is kept until it is dropped, and those that share its descriptor are.

    Safe in any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[int, int] = {}  # item -> descriptor
        self._held: dict[int, int] = {}  # descriptor -> payloads in it that were not dropped
        self._fd, self._count, self._end = -1, _SHARED, 0

    def put(self, index: int, payload: Any) -> Any:
        """Return what stands for a payload: itself, if it is small."""
        if not isinstance(payload, bytes) or len(payload) <= _SMALL:
            return payload
        with self._lock:
            if self._count == _SHARED or self._end >= _SHARED_NBYTES:
                self._begin()
            with open(self._fd, "ab", closefd=False) as file:
                file.write(payload)
            start, self._end = self._end, self._end + len(payload)
            self._count += 1
            self._places[index] = self._fd
            self._held[self._fd] += 1
            return _MARK, f"/proc/{os.getpid()}/fd/{self._fd}", start, len(payload)

    def drop(self, index: int) -> None:
        """Let go of an item's payload, if it is here."""
        with self._lock:
            fd = self._places.pop(index, None)
            if fd is None:
                return
            self._held[fd] -= 1
            if not self._held[fd]:
                del self._held[fd]
                os.close(fd)
                if fd == self._fd:
                    self._count = _SHARED  # the next one begins anew

    def close(self) -> None:
        """Let go of all."""
        for index in list(self._places):
            self.drop(index)

    def _begin(self) -> None:
        with told("cannot keep an input for the next model"):
            self._fd = os.memfd_create("gepipe-input", os.MFD_CLOEXEC)
        self._held[self._fd] = self._count = self._end = 0


def taken_out(payload: Any) -> Any:
    """Return the payload that something stands for.

    Raises:
        ItemError: It is gone.
    """
    if type(payload) is not tuple or len(payload) != 4 or payload[0] != _MARK:
        return payload
    _, path, start, nbytes = payload
    try:
        with Path(path).open("rb") as file:
            file.seek(start)
            return file.read(nbytes)
    except OSError as error:
        raise ItemError("gone", f"the input is gone: {error}") from error
