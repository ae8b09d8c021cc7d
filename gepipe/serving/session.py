"""One worker process, spoken to in turns: a question, then its answer."""

from __future__ import annotations

import math
import select
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gepipe.errors import GepipeError, WorkerStartError
from gepipe.runtime.board import Board
from gepipe.runtime.body import ModelInfo
from gepipe.runtime.channel import Message
from gepipe.runtime.events import Fault, Role, WorkerId
from gepipe.runtime.forkserver import wake_server
from gepipe.runtime.lent import LentRows
from gepipe.runtime.links import Link
from gepipe.runtime.memory import SharedBuffer
from gepipe.runtime.process import WorkerProcess, set_up_error, stop
from gepipe.runtime.watch import HEARTBEAT_S, Watch

#: How long a process may take to stop before it is killed.
_GRACE_S: Final = 1.5


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
    """A stage in a process of its own: a model that is open, or the operators of pre or post.

    Attributes:
        info: What the model says of itself; of infer only.
    """

    info: ModelInfo

    def __init__(
        self,
        name: str,
        body: bytes,
        environ: Mapping[str, str],
        start_s: float,
        *,
        role: Role = "infer",
    ) -> None:
        """Start the process; `open` waits until it is set up.

        Args:
            name: What to call it in messages.
            body: The pickled `Runner`; of pre the `Writer`, of post the `Reader`.
            environ: Environment variables that it must have as they are now.
            start_s: How long it may take to set itself up.
            role: What it runs.

        Raises:
            WorkerStartError: There is no process, descriptor or memory left.
        """
        self._name = name
        self._worker = WorkerId(role, 0)
        self._start_s = start_s
        self._limit_s = math.inf
        self._board = Board.create(1)
        self._watch = Watch({role: math.inf})
        try:
            self._process = WorkerProcess(self._worker, 0, body, environ)
        except BaseException:
            self._board.close()
            raise
        self._watch.starting(self._worker, start_s)
        self._tickets = 0
        self._lent: SharedBuffer | None = None
        self._over = False

    def open(self) -> None:
        """Wait until it is set up.

        Raises:
            GepipeError: It cannot be.
            SessionLost: The process ended before.
        """
        match self._wait():
            case ("ready", info):
                self._watch.idle(self._worker)
                if info is not None:
                    self.info = ModelInfo.from_plain(info)
            case ("failed", kind, text, trace):
                raise set_up_error(kind, text, trace, self._name)
            case other:
                raise WorkerStartError(f"{self._name} worker sent {other!r:.80}")

    def attach(self, links: Sequence[Link], limit_s: float) -> None:
        """Hand over the memory of the slots.

        Args:
            links: Of infer the rows to execute and those of the results; of pre those to write, of
                post those to read.
            limit_s: How long an execution, or an item, may take before the process is killed.
        """
        self._limit_s = limit_s
        self._watch = Watch({self._worker.role: limit_s})
        self._watch.idle(self._worker)
        plain = [(buffer.nbytes, layout.to_plain()) for buffer, layout in links]
        fds = [self._board.buffer.fd, *(buffer.fd for buffer, _ in links)]
        self._process.channel.send_shared(("attach", self._board.buffer.nbytes, plain), fds)

    def execute(
        self, first: int, last: int, lent: LentRows | None = None
    ) -> tuple[int, Fault | None]:
        """Execute the rows [first, last) of the input slot into those of the output slot.

        Args:
            first: The first row.
            last: The one behind the last.
            lent: Where the rows of the inputs lie instead.

        Returns:
            How long the process worked on it, in nanoseconds, and what went wrong.

        Raises:
            SessionLost: The process ended, or exceeded its limit and was killed.
        """
        source: int | tuple[int, ...] = 0
        if lent is not None:
            source = lent.offsets
            self._lend("lent", lent.memory)
        busy_ns, (result,) = self._ask(source, 0, first, last, (), self._tickets + 1, None)
        return busy_ns, None if isinstance(result, bytes) else Fault(*result)

    def work(self, items: Sequence[Any], memory: SharedBuffer | None = None) -> list[bytes | Fault]:
        """Write items into the first rows of the slot, or read them from there.

        Args:
            items: Of pre their payloads, of post what was noted about them.
            memory: What the payloads point into, if they do.

        Returns:
            What the operators return for each, or what went wrong with it.

        Raises:
            SessionLost: The process ended, or exceeded its limit and was killed.
        """
        if memory is not None:
            self._lend("memory", memory)
        count = len(items)
        seqs = (self._tickets + 1,) * count
        _, results = self._ask(0, tuple(range(count)), seqs, tuple(items), None)
        return [each if isinstance(each, bytes) else Fault(*each) for each in results]

    def _lend(self, kind: str, memory: SharedBuffer) -> None:
        """Hand over memory that rows or payloads lie in, unless the process has it."""
        if memory is not self._lent:
            self._process.channel.send_shared((kind, memory.nbytes), [memory.fd])
            self._lent = memory

    def _ask(self, *question: Any) -> tuple[int, list[Any]]:
        """Send a ticket; return how long it took, in nanoseconds, and the results."""
        self._tickets += 1
        self._watch.dealt(self._worker)
        self._process.channel.send((self._tickets, *question))
        match self._wait():
            case (ticket, busy_ns, results) if ticket == self._tickets:
                self._watch.replied(self._worker)
                return busy_ns, results
            case other:
                self._process.kill()
                raise SessionLost("crash", f"{self._name} worker sent {other!r:.80}", begun=True)

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
            channel.flush()
            wanted = select.POLLIN | (select.POLLOUT if channel.backlog else 0)
            poller.modify(channel.fileno(), wanted)
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
                "timeout",
                f"{self._name} worker was not set up within {self._start_s:g} s",
                begun=True,
            )
        if hung:
            text = f"{self._name} worker exceeded its limit of {self._limit_s:g} s"
            return SessionLost("timeout", text, begun=True)
        return SessionLost("crash", f"{self._name} worker {cause}", begun=seq == self._tickets)
