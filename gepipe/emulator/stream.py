"""Streams: queues of tasks that run in order."""

from __future__ import annotations

import queue
import sys
import traceback
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from gepipe.emulator.errors import EmulatorError
from gepipe.emulator.handles import Site
from gepipe.emulator.order import Access, Clock, Uses, merge
from gepipe.emulator.task import Latch, Task, TaskError

if TYPE_CHECKING:
    import threading

    from gepipe.emulator.device import Context
    from gepipe.emulator.ground import Ground
    from gepipe.emulator.profile import Fault

SYNC_TIMEOUT = 507046
COPY_FAILED, INTERNAL = 507013, 507000
_GLANCE_S, _PATIENCE = 0.05, 600


@dataclass(eq=False)
class Stream:
    """A queue of tasks. See `Task` and `gepipe.emulator.order`.

    Attributes:
        number: Its number in clocks.
        now_s: When its last task ended, by the emulated hardware's time.
        error: The first failure since somebody last waited for the stream.
        hangs: Whether its current task never ends.
    """

    ground: Ground
    context: Context
    number: int
    name: str
    site: Site = field(default_factory=Site)
    handle: int = 0
    queue: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)
    thread: threading.Thread | None = None
    clock: Clock = field(default_factory=dict)
    now_s: float = 0.0
    submitted: int = 0
    error: tuple[int, str] | None = None
    hangs: bool = False
    aborted: bool = False
    subscriber: Any = None
    blocked_on: Latch | None = None
    _head: Task | None = None

    def __str__(self) -> str:
        return f"{self.name} made at {self.site}"

    @property
    def is_default(self) -> bool:
        """Whether it is its context's default stream."""
        return self.context.default_stream == self.handle

    @property
    def completed(self) -> int:
        """How many of its tasks are done."""
        return self.ground.done.get(self.number, 0)

    @property
    def is_idle(self) -> bool:
        """Whether everything submitted is done."""
        return self.completed == self.submitted and not self.hangs

    def submit(
        self,
        task: Task,
        uses: tuple[tuple[Uses, int, int, bool], ...] = (),
        *,
        mark: Clock | None = None,
    ) -> None:
        """Queue a task.

        Args:
            task: The task.
            uses: (what, first byte, last byte, writes) for all that it uses.
            mark: Is given what is done once the task is.
        """
        ground = self.ground
        if ground.trouble and (fault := ground.faults.take()) is not None:
            task.run = partial(_fail, fault)
        with ground.lock:
            merge(self.clock, ground.host_clock)
            for what, first, last, writes in uses:
                if what.accesses and (
                    use := what.conflict(ground.host_clock, self.clock, first, last, writes=writes)
                ):
                    ground.race(task.label, use)
            self.submitted += 1
            task.seq = self.submitted
            task.submitted_s = ground.schedule.now()
            self.clock[self.number] = task.seq
            if mark is not None:
                mark.update(self.clock)
            for what, first, last, writes in uses:
                what.add(Access(self.number, task.seq, first, last, writes, task.label))
            ground.schedule.submit(self, task)

    def begin_s(self, task: Task) -> float:
        """Return when the hardware could begin with a task."""
        return max(task.submitted_s, self.now_s)

    def execute(self, task: Task) -> None:
        """Run a task, and keep its failure for whoever waits for the stream.

        The tasks behind one that failed run all the same: that is how ACL's streams are by default.
        """
        if not self.aborted:
            code, text = 0, ""
            try:
                code = self.context.device.lost
                if task.always or not code:
                    code = task.run(self)
            except TaskError as error:
                code, text = error.code, f"{task.label}: {error}"
            except EmulatorError as error:
                code, text = COPY_FAILED, str(error)
            except Exception:  # noqa: BLE001 - a thread of the emulator may not die of it
                code, text = INTERNAL, f"internal error of the emulator in {task.label}"
                self.ground.report.say(text)
                traceback.print_exc(file=sys.stderr)
            if code and self.error is None:
                self.error = (code, text or f"{task.label} failed")
        if self.number in self.ground.done:
            self.ground.done[self.number] = task.seq

    def head_can_run(self) -> bool:
        """Whether the first task waits for nothing. For `Stepped` schedules."""
        if self.hangs:
            return False
        if self._head is None and not self.queue.empty():
            self._head = self.queue.get()
        return self._head is not None and (self._head.after is None or self._head.after.done)

    def take(self) -> Task:
        """Remove the first task. For `Stepped` schedules."""
        task, self._head = self._head, None
        assert task is not None
        return task

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait until everything submitted so far is done; return a code, of failures too."""
        ground = self.ground
        known = dict(self.clock)
        if not self.is_idle:
            latch = Latch()
            known = {}

            def reached(_: Stream) -> int:
                latch.open()
                return 0

            self.submit(Task(reached, "synchronisation", always=True), mark=known)
            if not ground.schedule.wait(latch, timeout_s):
                return ground.fail(SYNC_TIMEOUT, f"{self} did not finish in {timeout_s} s")
        ground.observe(known)
        return self.take_error()

    def take_error(self) -> int:
        """Return the code of the stream's failure, and clear it."""
        if self.error is None:
            return 0
        (code, text), self.error = self.error, None
        return self.ground.fail(code, text)

    def hang(self) -> int:
        """Never end, until aborted."""
        self.hangs = True
        self.blocked_on = Latch()
        if self.thread is not None:
            self.blocked_on.wait()
        return 0

    def abort(self) -> None:
        """Drop what is queued and end the thread."""
        self.aborted = True
        self.hangs = False
        if (blocked := self.blocked_on) is not None:
            blocked.open()
        self.end()

    def end(self) -> None:
        """End the thread when it has done what is queued, unless it is stuck."""
        if self.thread is None:
            return
        self.queue.put(None)
        left = _PATIENCE
        self.thread.join(_GLANCE_S)
        while self.thread.is_alive() and not self.hangs and self.blocked_on is None and left:
            self.thread.join(_GLANCE_S)
            left -= 1
        self.thread = None


def _fail(fault: Fault, stream: Stream) -> int:
    if fault.hang:
        return stream.hang()
    if fault.lost:
        stream.context.device.lost = fault.code
        stream.ground.trouble = True
    return fault.code
