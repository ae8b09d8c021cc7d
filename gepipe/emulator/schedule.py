"""When the tasks of streams run: each stream on its own thread, or one by one as a seed says."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from gepipe.emulator import native
from gepipe.emulator.errors import EmulatorError
from gepipe.emulator.task import Latch, Task


class Line(Protocol):
    """A queue of tasks, as far as a schedule must know it. See `gepipe.emulator.stream`."""

    name: str
    queue: queue.SimpleQueue[Any]
    thread: threading.Thread | None
    blocked_on: Latch | None
    hangs: bool
    aborted: bool

    @property
    def is_idle(self) -> bool:
        """Whether everything submitted is done."""
        ...

    def head_can_run(self) -> bool:
        """Whether the first task waits for nothing."""
        ...

    def take(self) -> Task:
        """Remove the first task."""
        ...

    def execute(self, task: Task) -> None:
        """Run a task."""
        ...


class Schedule(Protocol):
    """Runs tasks and knows the time."""

    def submit(self, stream: Line, task: Task) -> None:
        """Queue a task behind the others of its stream."""
        ...

    def wait(self, latch: Latch, timeout_s: float | None = None) -> bool:
        """Wait, from a thread of the program, until a latch opens; return whether it did."""
        ...

    def take(self, items: queue.SimpleQueue[Any], timeout_s: float | None) -> Any:
        """Wait for something in a queue that tasks fill; return it, or None."""
        ...

    def now(self) -> float:
        """Return the time in seconds."""
        ...

    def sleep_until(self, moment_s: float, *, hold_gil: bool = False) -> None:
        """Let time pass."""
        ...

    def pump(self) -> None:
        """Let something happen, when nothing does by itself."""
        ...

    def notify(self) -> None:
        """Look again: something outside the streams happened."""
        ...


class Threaded:
    """Each stream has a thread; time is real."""

    def submit(self, stream: Line, task: Task) -> None:
        """Queue a task behind the others of its stream."""
        if stream.thread is None:
            stream.thread = threading.Thread(
                target=self._serve, args=(stream,), name=f"acl-{stream.name}", daemon=True
            )
            stream.thread.start()
        stream.queue.put(task)

    def _serve(self, stream: Line) -> None:
        native.wake_exactly()
        while (task := stream.queue.get()) is not None:
            if task.after is not None and not task.after.done and not stream.aborted:
                stream.blocked_on = task.after
                task.after.wait()
                stream.blocked_on = None
            stream.execute(task)

    def wait(self, latch: Latch, timeout_s: float | None = None) -> bool:
        """Wait until a latch opens; return whether it did."""
        return latch.wait(timeout_s)

    def take(self, items: queue.SimpleQueue[Any], timeout_s: float | None) -> Any:
        """Wait for something in a queue; return it, or None."""
        try:
            return items.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def now(self) -> float:
        """Return the time in seconds."""
        return time.monotonic()

    def sleep_until(self, moment_s: float, *, hold_gil: bool = False) -> None:
        """Let time pass."""
        native.sleep_until(moment_s, hold_gil=hold_gil)

    def pump(self) -> None:
        """Let something happen."""
        return

    def notify(self) -> None:
        """Look again."""
        return


class Stepped:
    """Tasks run in the threads that wait, one at a time, in an order that a seed chooses.

    Any order that real streams could take can come up, and the same seed brings it up again. Time
    is virtual: nothing sleeps. Without a seed, tasks run as soon as they can and in real time,
    which is how the emulator works at the very end of the interpreter, when threads are gone.
    """

    def __init__(self, seed: int | None, turn: threading.RLock) -> None:
        self._random = None if seed is None else random.Random(seed)  # noqa: S311 - no secret
        self._streams: list[Line] = []
        self._turn = turn
        self._changed = threading.Condition(self._turn)
        self._now = 1.0

    def submit(self, stream: Line, task: Task) -> None:
        """Queue a task behind the others of its stream."""
        with self._turn:
            if stream not in self._streams:
                self._streams.append(stream)
            stream.queue.put(task)
            self._changed.notify_all()
            if self._random is None:
                while self._step():
                    pass
                return
            while self._random.random() < 1 / 3 and self._step():
                pass

    def _step(self) -> bool:
        """Run one task of a stream that can go on; return whether there was one."""
        able = [stream for stream in self._streams if stream.head_can_run()]
        if not able:
            return False
        stream = able[0] if self._random is None else self._random.choice(able)
        stream.execute(stream.take())
        if stream.is_idle:
            self._streams.remove(stream)
        self._changed.notify_all()
        return True

    def wait(self, latch: Latch, timeout_s: float | None = None) -> bool:
        """Wait until a latch opens; return whether it did."""
        return self.drive(lambda: latch.done, timeout_s)

    def take(self, items: queue.SimpleQueue[Any], timeout_s: float | None) -> Any:
        """Wait for something in a queue; return it, or None."""
        self.drive(lambda: not items.empty(), timeout_s)
        try:
            return items.get_nowait()
        except queue.Empty:
            return None

    def drive(self, reached: Callable[[], bool], timeout_s: float | None) -> bool:
        """Run tasks until something is reached, or nothing can run and the time is over."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        with self._turn:
            while not reached():
                if self._step():
                    continue
                if any(stream.hangs for stream in self._streams):
                    if timeout_s is not None:
                        self._now += timeout_s
                        return False
                    raise EmulatorError(
                        "this wait would last for ever: a task hangs, as the profile demands"
                    )
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(0.2 if left is None else min(left, 0.2))
        return True

    def now(self) -> float:
        """Return the time in seconds."""
        return time.monotonic() if self._random is None else self._now

    def sleep_until(self, moment_s: float, *, hold_gil: bool = False) -> None:
        """Let time pass."""
        if self._random is None:
            native.sleep_until(moment_s, hold_gil=hold_gil)
        else:
            self._now = max(self._now, moment_s)

    def pump(self) -> None:
        """Let something happen."""
        with self._turn:
            self._step()

    def notify(self) -> None:
        """Look again."""
        with self._turn:
            self._changed.notify_all()
