"""Processes from the fork server, each with a channel to it: started, killed, collected."""

from __future__ import annotations

import os
import signal
import socket
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from gepipe import errors
from gepipe.errors import GepipeError, ItemError, WorkerStartError
from gepipe.runtime import worker as worker_module
from gepipe.runtime.channel import Channel
from gepipe.runtime.events import WorkerId
from gepipe.runtime.forked import ForkedProcess
from gepipe.runtime.forkserver import ONE_THREAD, start, wake_server
from gepipe.runtime.limits import told

#: How a worker ended that nobody could watch any longer.
SERVER_KILLED: Final = "lost with the fork server, which was killed"

_processes: weakref.WeakSet[ChildProcess] = weakref.WeakSet()


def _forget_processes() -> None:
    """In a child of fork(): let go of the parent's workers, without touching them."""
    for process in list(_processes):
        process.forget()
    _processes.clear()


os.register_at_fork(after_in_child=_forget_processes)


class ChildProcess:
    """A process from the fork server, and this end of the channel to it.

    Attributes:
        name: What it is called in messages and lists of processes.
        process: The process.
        channel: Never blocks.
    """

    def __init__(self, name: str, target: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Start it.

        Args:
            name: What it is called.
            target: What it runs; given its end of the channel, a socket, and then `args`.
            args: Plain values.

        Raises:
            WorkerStartError: It cannot be started.
        """
        self.name = name
        with told(f"{name}: cannot open a socket"):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.process: Any = ForkedProcess(
                target=target, args=(theirs, *args), name=f"gepipe {name}", daemon=True
            )
            start(self.process)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.channel = Channel(ours)
        _processes.add(self)

    def forget(self) -> None:
        """Close what is open here in a child of fork(), where it belongs to the parent."""
        self.channel.close()
        with suppress(OSError):
            os.close(self.process.sentinel)

    def kill(self) -> None:
        """End the process at once; its sentinel reports it as any other death."""
        self.process.kill()
        wake_server()

    @property
    def ending(self) -> str | None:
        """How it ended, in words; None while it runs."""
        if self.process.exitcode is None:
            return None
        return SERVER_KILLED if self.process.is_lost else describe_exit(self.process.exitcode)

    def reap(self) -> str:
        """Collect a process that ended; return how, in words."""
        wake_server()
        self.process.join()
        ending = self.ending
        assert ending is not None
        self.channel.close()
        self.process.close()
        return ending


class WorkerProcess(ChildProcess):
    """A worker's process and the supervisor's end of its channel."""

    def __init__(
        self, worker: WorkerId, place: int, body: bytes, environ: Mapping[str, str]
    ) -> None:
        self.worker = worker
        self.place = place
        super().__init__(
            str(worker),
            worker_module.main,
            (worker.role, place, body, {**environ, **ONE_THREAD}),
        )


def describe_exit(exitcode: int) -> str:
    """Say how a process ended: "killed by SIGSEGV", "exited with status 3"."""
    if exitcode >= 0:
        return f"exited with status {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    hint = " (by hand, or by the kernel when memory ran out)" if name == "SIGKILL" else ""
    return f"killed by {name}{hint}"


def set_up_error(kind: str, text: str, trace: str, stage: str = "") -> GepipeError:
    """Return the error that a worker reported of its set-up, as the class it was if that is ours.

    Args:
        kind: Name of the exception's class.
        text: Its message.
        trace: Its traceback, shown where the error is not one of ours.
        stage: The stage's name, to begin the message with.
    """
    where = f"{stage}: " if stage else ""
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, GepipeError) and known is not ItemError:
        return known(f"{where}{text}")
    return WorkerStartError(f"{where}set-up failed: {text}\n{trace.rstrip()}")


def stop(workers: Sequence[ChildProcess], *, grace_s: float) -> None:
    """End every worker within about `grace_s`: ask, then SIGKILL.

    There is no SIGTERM in between: a worker that does not answer the end of its channel is in the
    middle of a C call, where Python would not run a handler either. All workers share the deadline,
    so the bound does not grow with their number.
    """
    for worker in workers:
        worker.channel.close()
    wake_server()
    deadline = time.monotonic() + grace_s
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
    for worker in workers:
        if worker.process.exitcode is None:
            worker.process.kill()
    for worker in workers:
        worker.process.join()
        worker.process.close()
