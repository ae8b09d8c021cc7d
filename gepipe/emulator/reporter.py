"""Threads of the program that callbacks run in."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gepipe.emulator.order import Clock
from gepipe.emulator.stream import Stream
from gepipe.emulator.task import Latch


@dataclass(slots=True)
class Due:
    """A callback that is due."""

    call: Callable[..., Any]
    argument: list[Any]
    done: Latch
    clock: Clock


@dataclass(eq=False, slots=True)
class Reporter:
    """A thread that callbacks run in, and the streams it serves."""

    tid: int
    streams: list[Stream] = field(default_factory=list)
    due: queue.SimpleQueue[Due] = field(default_factory=queue.SimpleQueue)


@dataclass(eq=False, slots=True)
class Worker:
    """A thread that `start_thread` began."""

    thread: threading.Thread
    error: BaseException | None = None
