"""Large inputs that live in the program itself, put where the workers of later models find them.

A picture that a program hands over as bytes travels to the first model's worker; its parts would
take it along once more each. Instead they take along where it lies.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from gepipe.errors import ItemError
from gepipe.runtime.limits import told

#: Payloads, in bytes, that travel as they are.
_SMALL: Final = 16 << 10
_MARK: Final = "gepipe.stash"


class Stash:
    """Payloads by item. Each is kept until it is dropped."""

    def __init__(self) -> None:
        self._fds: dict[int, int] = {}

    def put(self, index: int, payload: Any) -> Any:
        """Return what stands for a payload: itself, if it is small."""
        if not isinstance(payload, bytes) or len(payload) <= _SMALL:
            return payload
        with told("cannot keep an input for the next model"):
            fd = self._fds[index] = os.memfd_create("gepipe-input", os.MFD_CLOEXEC)
            with open(fd, "wb", closefd=False) as file:
                file.write(payload)
        return _MARK, f"/proc/{os.getpid()}/fd/{fd}"

    def drop(self, index: int) -> None:
        """Let go of an item's payload, if it is here."""
        fd = self._fds.pop(index, -1)
        if fd >= 0:
            os.close(fd)

    def close(self) -> None:
        """Let go of all."""
        for index in list(self._fds):
            self.drop(index)


def taken_out(payload: Any) -> Any:
    """Return the payload that something stands for.

    Raises:
        ItemError: It is gone.
    """
    if type(payload) is not tuple or len(payload) != 2 or payload[0] != _MARK:
        return payload
    try:
        return Path(payload[1]).read_bytes()
    except OSError as error:
        raise ItemError("gone", f"the input is gone: {error}") from error
