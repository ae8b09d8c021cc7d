"""Tasks: what streams do one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


class Latch:
    """Something that happens once and can be waited for. Cheaper than `threading.Event`."""

    __slots__ = ("_lock", "done")

    def __init__(self) -> None:
        self.done = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Make it happen."""
        self.done = True
        with suppress(RuntimeError):  # opened twice
            self._lock.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for it; return whether it happened in time."""
        if not self.done and self._lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
            self._lock.release()  # for the next one who waits
        return self.done


class TaskError(Exception):
    """A task failed as tasks on hardware do.

    Attributes:
        code: What whoever waits for the stream gets.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(slots=True)
class Task:
    """One thing that a stream does.

    Attributes:
        run: Does it and returns a code; gets the stream.
        label: How messages name it.
        seq: Its number on its stream, from 1.
        submitted_s: When it was submitted.
        after: What must happen first, in another stream or on the host.
        always: Whether it runs even on a lost device, so that nobody waits for it for ever.
    """

    run: Callable[[Any], int]
    label: str
    seq: int = 0
    submitted_s: float = 0.0
    after: Latch | None = None
    always: bool = False
