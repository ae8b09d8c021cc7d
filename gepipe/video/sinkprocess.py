"""A process that makes files for a sink, beside the run: the run never waits for it.

sink (main process) ── what to make ──▶ process
sink                ◀── made, done, failed ──┘
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from gepipe.errors import GepipeError, Interrupted
from gepipe.runtime import tuning
from gepipe.runtime.channel import WorkerChannel

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from gepipe.runtime.channel import Message

#: How long a run that was stopped waits for files whose last part is on its way, and for a process
#: that does nothing.
_GRACE_S: Final = 10.0
#: How often a thread that waits for the process to complete its files looks whether it works.
_GLANCE_S: Final = 0.5


class SinkProcess:
    """The process, as the sink sees it.

    Args:
        name: What it is called.
        target: Its main function, which calls `serve`.
        args: Plain values for it.
    """

    def __init__(self, name: str, target: Callable[..., None], args: tuple[Any, ...]) -> None:
        from gepipe.runtime.process import ChildProcess

        self.made: set[str] = set()
        self._done = self._stopping = False
        self._name = name
        self._error: GepipeError | None = None
        # Of a chain over videos, the first leg's thread asks why frames do not come back.
        self._lock = threading.RLock()
        self._child = ChildProcess(name, target, args)

    @property
    def failed(self) -> bool:
        """Whether it is known to have failed."""
        return self._error is not None

    def send(self, message: Message, fds: Iterable[int] = ()) -> None:
        """Give it something to do, without waiting.

        Raises:
            GepipeError: It has failed, or has ended.
        """
        with self._lock:
            self.check()
            if fds:
                self._child.channel.send_shared(message, list(fds))
            else:
                self._child.channel.send(message)

    def check(self) -> None:
        """Take note of what it has done.

        Raises:
            GepipeError: It has failed, or has ended.
        """
        with self._lock:
            if self._error is None:
                self._listen()
            if self._error is not None:
                raise self._error

    def _listen(self) -> None:
        channel = self._child.channel
        channel.flush()
        for kind, *fields in channel.receive():
            if kind == "made":
                self.made.add(fields[0])
            elif kind == "done":
                self._done = True
            elif kind == "failed":
                self._error = GepipeError(fields[0])
        if channel.ended and self._error is None and not self._done:
            how = self._child.reap()
            self._error = GepipeError(
                f"the {self._name} process was lost ({how}); run again with --resume"
            )

    def request_stop(self) -> None:
        """Ask not to wait any longer for a process that does nothing. Safe in any thread."""
        self._stopping = True

    def gone(self) -> GepipeError:
        """Wait for the reason why it is ending, and return it."""
        due = time.monotonic() + _GRACE_S
        try:
            self.check()
            while not self._done and (left_s := due - time.monotonic()) > 0:
                self._wait(left_s)
                self.check()
        except GepipeError as error:
            return error
        return GepipeError(f"the {self._name} process ended before the run")

    def wait_made(self, names: Collection[str]) -> None:
        """Wait until all of `names` are made; give up on a process that stands still.

        Raises:
            GepipeError: It has failed, or has ended.
        """
        self.check()
        due = time.monotonic() + _GRACE_S
        while not self.made.issuperset(names) and (left_s := due - time.monotonic()) > 0:
            self._wait(left_s)
            self.check()

    def finish(self) -> None:
        """Have it complete all that was begun, and wait for it.

        Raises:
            GepipeError: It has failed, or has ended.
            Interrupted: A stop was asked for, and it does nothing.
        """
        self.send(("finish",))
        worked, since = self._worked(), time.monotonic()
        while not self._done:
            self._wait(_GLANCE_S)
            self.check()
            if not self._stopping or self._worked() != worked:
                worked, since = self._worked(), time.monotonic()
            elif time.monotonic() - since > _GRACE_S:
                raise Interrupted(f"the {self._name} process does nothing; run with --resume")
        self.close()

    def _worked(self) -> tuple[str, ...]:
        """Return a measure of the time that it was at work; the same while it stands still."""
        try:
            stat = Path(f"/proc/{self._child.process.pid}/stat").read_text()
        except (OSError, ValueError):  # ended, and collected
            return ()
        return tuple(stat.rpartition(")")[2].split()[11:13])  # user and system, proc(5)

    def close(self) -> None:
        """End the process, whatever it does. Closing twice is harmless."""
        child = self._child
        if child.channel.fileno() >= 0:
            child.kill()
            child.reap()

    def _wait(self, limit_s: float) -> None:
        channel = self._child.channel
        if channel.fileno() < 0:  # another thread has found it ended
            return
        poll = select.poll()
        poll.register(channel.fileno(), select.POLLIN | (select.POLLOUT if channel.backlog else 0))
        poll.poll(1000 * limit_s)


class SinkBody(Protocol):
    """What the process does."""

    def do(self, kind: str, fields: tuple[Any, ...], fds: list[int]) -> Iterable[str]:
        """Do what a message asks for; yields the names of files that are in their places.

        Raises:
            GepipeError: A file cannot be made.
        """
        ...

    def finish(self) -> Iterable[str]:
        """Complete all that was begun; yields names as `do`."""
        ...

    def rest(self) -> None:
        """Take note that there is nothing to do now."""

    def drop(self) -> None:
        """Remove what will not be whole."""


def serve(sock: socket.socket, body: SinkBody) -> NoReturn:
    """Run the process: does not return, and ends with the supervisor at the latest."""
    tuning.begin_process({})
    channel = WorkerChannel(sock)
    try:
        while True:
            if not channel.pending():
                body.rest()
            if (message := channel.receive()) is None:
                break
            kind, *fields = message
            finishing = kind == "finish"
            done = body.finish() if finishing else body.do(kind, tuple(fields), channel.take_fds())
            for name in done:
                channel.send(("made", name))
            if finishing:
                channel.send(("done",))
    except Exception as error:  # noqa: BLE001 - whatever it is, the supervisor must hear of it
        ours = isinstance(error, GepipeError)
        channel.send(("failed", str(error) if ours else traceback.format_exc().rstrip()))
    finally:
        body.drop()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)
