"""One infer worker process, spoken to in turns: a question, then its answer."""

from __future__ import annotations

import math
import select
import time
from collections.abc import Mapping
from typing import Final, TypeAlias

from gepipe.errors import GepipeError, WorkerStartError
from gepipe.runtime.board import Board
from gepipe.runtime.channel import Message
from gepipe.runtime.events import Fault, WorkerId
from gepipe.runtime.memory import SharedBuffer, SlotLayout
from gepipe.runtime.process import WorkerProcess, set_up_error, stop, wake_server
from gepipe.runtime.watch import HEARTBEAT_S, Watch
from gepipe.runtime.worker import ModelInfo

#: Memory of the slots of one side, and how they lie in it.
Link: TypeAlias = tuple[SharedBuffer, SlotLayout]

#: How long a process may take to stop before it is killed.
_GRACE_S: Final = 1.5
_WORKER: Final = WorkerId("infer", 0)


class SessionLost(GepipeError):  # noqa: N818 - a fact about the process, handled by its host
    """The process ended, or was ended.

    Attributes:
        kind: `timeout` or `crash`.
        begun: Whether it was working on what it had been asked.
    """

    def __init__(self, kind: str, text: str, *, begun: bool) -> None:
        super().__init__(text)
        self.kind = kind
        self.begun = begun


class Session:
    """A model that is open in a process of its own.

    Attributes:
        info: What the model says of itself.
    """

    info: ModelInfo

    def __init__(self, name: str, body: bytes, environ: Mapping[str, str], start_s: float) -> None:
        """Start the process; `open` waits until the model is open.

        Args:
            name: What to call it in messages.
            body: The pickled `Runner`.
            environ: Environment variables that it must have as they are now.
            start_s: How long the model may take to open.

        Raises:
            WorkerStartError: There is no process, descriptor or memory left.
        """
        self._name = name
        self._start_s = start_s
        self._limit_s = math.inf
        self._board = Board.create(1)
        self._watch = Watch({"infer": math.inf})
        try:
            self._process = WorkerProcess(_WORKER, 0, body, environ)
        except BaseException:
            self._board.close()
            raise
        self._watch.starting(_WORKER, start_s)
        self._tickets = 0
        self._over = False

    def open(self) -> None:
        """Wait until the model is open.

        Raises:
            GepipeError: It cannot be opened.
            SessionLost: The process ended before.
        """
        match self._wait():
            case ("ready", info):
                self._watch.idle(_WORKER)
                self.info = ModelInfo.from_plain(info)
            case ("failed", kind, text, trace):
                raise set_up_error(kind, text, trace, self._name)
            case other:
                raise WorkerStartError(f"{self._name}: the worker sent {other!r:.80}")

    def attach(self, inputs: Link, outputs: Link, limit_s: float) -> None:
        """Hand over the memory of the slots.

        Args:
            inputs: Where the rows to execute lie.
            outputs: Where the results are to lie.
            limit_s: How long an execution may take before the process is killed.
        """
        self._limit_s = limit_s
        self._watch = Watch({"infer": limit_s})
        self._watch.idle(_WORKER)
        links = (inputs, outputs)
        plain = [(buffer.nbytes, layout.to_plain()) for buffer, layout in links]
        fds = [self._board.buffer.fd, *(buffer.fd for buffer, _ in links)]
        self._process.channel.send_shared(("attach", self._board.buffer.nbytes, plain), fds)

    def execute(self, first: int, last: int) -> tuple[int, Fault | None]:
        """Execute the rows [first, last) of the input slot into those of the output slot.

        Returns:
            How long the process worked on it, in nanoseconds, and what went wrong.

        Raises:
            SessionLost: The process ended, or exceeded its limit and was killed.
        """
        self._tickets += 1
        self._watch.dealt(_WORKER)
        self._process.channel.send((self._tickets, 0, 0, first, last, (), self._tickets))
        match self._wait():
            case (ticket, busy_ns, [result]) if ticket == self._tickets:
                self._watch.replied(_WORKER)
                return busy_ns, None if isinstance(result, bytes) else Fault(*result)
            case other:
                self._process.kill()
                raise SessionLost("crash", f"the worker sent {other!r:.80}", begun=True)

    def kill(self) -> None:
        """End the process at once; whoever waits for it hears that it is lost."""
        if not self._over:
            self._process.kill()

    def close(self) -> None:
        """End the process, within its grace. Closing twice is harmless."""
        if not self._over:
            self._over = True
            stop([self._process], grace_s=_GRACE_S)
        self._board.close()

    def _wait(self) -> Message:
        channel = self._process.channel
        poller = select.poll()
        poller.register(channel.fileno(), select.POLLIN)
        sentinel = self._process.process.sentinel
        poller.register(sentinel, select.POLLIN)
        before = time.monotonic()
        while True:
            for message in channel.receive():
                return message
            if channel.ended:
                raise self._lost()
            if channel.backlog:
                channel.flush()
            due = min(self._watch.next_look, before + HEARTBEAT_S)
            ready = poller.poll(max(0.0, due - before) * 1000 + 1)
            now = time.monotonic()
            self._watch.looked(before, due, now)
            before = now
            late = [*self._watch.late(now, lambda _: self._board.read(0))]
            if late or any(fd == sentinel for fd, _ in ready):
                self._process.kill()
                for message in channel.receive():  # what was sent before still counts
                    return message
                raise self._lost(hung=bool(late))

    def _lost(self, *, hung: bool = False) -> SessionLost:
        self._over = True
        self._process.kill()  # it may have closed its end only
        wake_server()
        seq, _ = self._board.read(0)
        cause = self._process.reap()
        if hung and not self._tickets:
            return SessionLost(
                "timeout", f"the model did not open within {self._start_s:g} s", begun=True
            )
        if hung:
            limit = f"the limit of {self._limit_s:g} s"
            return SessionLost("timeout", f"an execution exceeded {limit}", begun=True)
        return SessionLost("crash", f"the worker process {cause}", begun=seq == self._tickets)
