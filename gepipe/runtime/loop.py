"""What the thread that owns workers waits for: their channels and ends, a wake-up call, a time."""

from __future__ import annotations

import math
import os
import selectors
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from selectors import EVENT_READ
from typing import TYPE_CHECKING

from gepipe.runtime.limits import told
from gepipe.runtime.watch import HEARTBEAT_S

if TYPE_CHECKING:
    from gepipe.runtime.events import Event
    from gepipe.runtime.workforce import Workforce


class Loop:
    """A selector, and a pipe to wake it.

    Attributes:
        selector: Where descriptors are registered; data is a callable of the mask, which returns
            events.
    """

    def __init__(self) -> None:
        with told("cannot watch workers"):
            self.selector = selectors.DefaultSelector()
            self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.selector.register(self._wake_read, EVENT_READ, self._woken)
        self._looked = 0.0

    def begin(self) -> None:
        """Say that the thread begins to look after its workers."""
        self._looked = time.monotonic()

    def wake(self) -> None:
        """End the wait that is going on, or the next one. Safe in signal handlers and threads."""
        with suppress(OSError):  # closed, or full: then it is woken already
            os.write(self._wake_write, b"\0")

    def events(self, workforce: Workforce, due: float) -> Iterator[Event]:
        """Wait for what happens first, and yield all that has happened.

        Args:
            workforce: The workers.
            due: When to go on at the latest, on the monotonic clock.
        """
        due = min(workforce.next_look, due)
        delay_s = None
        if due < math.inf:
            delay_s = min(HEARTBEAT_S, max(0.0, due - time.monotonic()))
        ready = self.selector.select(delay_s)
        now = time.monotonic()
        if delay_s is not None:
            workforce.looked(self._looked, self._looked + delay_s, now)
        self._looked = now
        for key, mask in ready:
            yield from key.data(mask)
        yield from workforce.end_late_ones(now)

    def close(self) -> None:
        """Close the selector and the pipe."""
        self.selector.close()
        wake_write, self._wake_write = self._wake_write, -1
        os.close(self._wake_read)
        os.close(wake_write)

    def _woken(self, _: int) -> Iterable[Event]:
        with suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        return ()
