"""Wakes a loop that waits, from threads and from signal handlers."""

from __future__ import annotations

import os
import select
from contextlib import suppress

from typing_extensions import Self


class Bell:
    """A pipe to itself: an event of `threading` may lock up when a signal handler sets it."""

    def __init__(self) -> None:
        self._ear, self._rope = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def ring(self) -> None:
        """Let the present or next `wait` return at once."""
        with suppress(BlockingIOError, OSError):  # full: it rings already; closed: nobody waits
            os.write(self._rope, b"\0")

    def wait(self, timeout_s: float) -> None:
        """Wait until it rings, at the longest `timeout_s`."""
        select.select([self._ear], [], [], max(0.0, timeout_s))
        with suppress(BlockingIOError):
            os.read(self._ear, 4096)

    def close(self) -> None:
        """Close it; once is enough."""
        for end in (self._ear, self._rope):
            with suppress(OSError):
                os.close(end)
        self._ear = self._rope = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
