"""Starting and stopping worker processes.

Workers are forked from a fork server: a process without threads, model or device, that has only
imported what every worker needs. pyACL forbids fork after it was used, OpenCV and ONNX Runtime do
not survive it; none of them has done anything there. The server is one per Python process, starts
with the first worker and ends with the process that uses it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from shutil import rmtree
from tempfile import gettempdir, mkdtemp
from typing import Any, Final

import multiprocess
import multiprocess.resource_tracker
from multiprocess import forkserver

from gepipe import errors
from gepipe.errors import GepipeError, ItemError, WorkerStartError
from gepipe.runtime import tuning
from gepipe.runtime import worker as worker_module
from gepipe.runtime.channel import Channel
from gepipe.runtime.events import WorkerId
from gepipe.runtime.forked import ForkedProcess
from gepipe.runtime.limits import told, why

#: One thread a process: the thread plan gives cores to processes, not to libraries' pools.
_ONE_THREAD: Final = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
    ),
    "1",
)
_PRELOAD: Final = [
    "gepipe.runtime.server",
    "gepipe.runtime.forked",
    "numpy",
    "cv2",
    "dill",
    "gepipe.runtime.worker",
]
#: What a start changes for a moment, such as `__main__`, belongs to the whole process: two threads
#: that start workers at once would each restore what the other had changed.
_starting = threading.RLock()
#: Longest folder for temporary files in which `/pymp-12345678/listener-12345678` is still a name of
#: at most 107 bytes, as sockets need (unix(7)).
_TMPDIR_MAX: Final = 107 - len("/pymp-12345678/listener-12345678")
#: How often a worker's start is tried when the fork server dies during it.
_START_TRIES: Final = 3
#: How a worker ended that nobody could watch any longer.
SERVER_KILLED: Final = "lost with the fork server, which was killed"
#: Looks, 10 ms apart, at a server whose end of a pipe is closed and which may be about to end.
_ENDING_TRIES: Final = 5
#: What `multiprocess` says of such a worker; a worker may also end with it by itself.
_STATUS_UNKNOWN: Final = 255


def start_server(preload: Sequence[str] = ()) -> None:
    """Start the fork server, so that its imports run while the caller goes on. Idempotent.

    Args:
        preload: Further modules that workers will need. They must have neither threads nor devices.
    """
    forkserver.set_forkserver_preload([*_PRELOAD, *preload])
    with _starting, _workers_environment():
        try:
            _keep_socket_path_short()
            with _interrupts_blocked():
                forkserver.ensure_running()
        except (OSError, RuntimeError) as error:
            raise WorkerStartError(f"cannot start the fork server: {why(error)}") from error


def _keep_socket_path_short() -> None:
    """Have the server's socket in /tmp where `TMPDIR` is too long for the name of a socket."""
    config = multiprocess.process.current_process()._config  # noqa: SLF001 - no public way exists
    if config.get("tempdir") is None and len(os.fsencode(gettempdir())) > _TMPDIR_MAX:
        folder = config["tempdir"] = mkdtemp(prefix="pymp-", dir="/tmp")
        multiprocess.util.Finalize(None, rmtree, args=(folder, True), exitpriority=-100)


def remove_folder() -> None:
    """Remove the folder of the server's socket, before this process ends without a tidy end."""
    folder = multiprocess.process.current_process()._config.get("tempdir")  # noqa: SLF001 - as above
    if folder is not None:
        rmtree(folder, ignore_errors=True)


def stop_server() -> None:
    """End the fork server and wait for it. The next worker starts a new one."""
    stop = getattr(forkserver._forkserver, "_stop", None)  # noqa: SLF001 - no public way exists
    if stop is not None:
        stop()


@contextmanager
def _workers_environment() -> Iterator[None]:
    """Set what libraries read when they are imported, which happens in the server."""
    # Without a safe path the server would import from the current folder first, whatever is there.
    wanted = {**_ONE_THREAD, tuning.SAFE_PATH: "1", tuning.SUPERVISOR: str(os.getpid())}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Have the server, and with it each worker from its first moment, not see Ctrl-C.

    Blocked in this thread, not ignored by this process: here an interrupt must not be lost. What
    inherits the block ignores the signal as soon as its own code runs.
    """
    multiprocess.resource_tracker.ensure_running()  # which would unblock it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep a new process from importing the caller's script again.

    The script may lack the `if __name__ == "__main__"` guard, and importing it costs time; what a
    worker needs of it travels by value.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def wake_server() -> None:
    """Let a server go on that was stopped, without which no worker starts, or is seen to end."""
    server = forkserver._forkserver._forkserver_pid  # noqa: SLF001 - as in stop_server
    if server is not None:
        with suppress(ProcessLookupError):
            os.kill(server, signal.SIGCONT)


@contextmanager
def _children_allowed() -> Iterator[None]:
    """Start processes in a daemonic one of `multiprocess` too: ours end with it."""
    config = multiprocess.process.current_process()._config  # noqa: SLF001 - no public way exists
    daemon = config.pop("daemon", None)
    try:
        yield
    finally:
        if daemon is not None:
            config["daemon"] = daemon


def _start(process: Any) -> None:
    """Start a process, with a new fork server if the old one is gone.

    A server that was killed refuses connections before it can be seen to have ended. One whose
    socket was removed, as a cleaner of /tmp may do, can no longer be reached at all.
    """
    for last in (False,) * (_START_TRIES - 1) + (True,):
        try:
            with _starting, _without_main(), _children_allowed():
                start_server()
                wake_server()
                process.start()
        except (ConnectionError, EOFError, FileNotFoundError) as error:
            if last:
                raise WorkerStartError(f"{process.name}: the fork server died: {error}") from error
            if isinstance(error, FileNotFoundError):
                stop_server()
                continue
            server = forkserver._forkserver._forkserver_pid  # noqa: SLF001 - as in stop_server
            if server is not None:
                with suppress(ChildProcessError):
                    os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
        except OSError as error:
            raise WorkerStartError(
                f"{process.name}: cannot start another process: {why(error)}"
            ) from error
        else:
            return


_processes: weakref.WeakSet[ChildProcess] = weakref.WeakSet()


def _forget_parent() -> None:
    """In a child of fork(): let go of the parent's workers and server, without touching them.

    The child would end the parent's workers when it ends itself, and wait for a server that is none
    of its children; its copies of sockets would keep workers from seeing that the parent is gone.
    """
    global _starting  # noqa: PLW0603 - another thread of the parent may have held it
    _starting = threading.RLock()
    multiprocess.process._children = set()  # noqa: SLF001 - no public way exists, here and below
    current = multiprocess.process.current_process()
    current._config = {k: v for k, v in current._config.items() if k != "tempdir"}  # noqa: SLF001
    server = forkserver._forkserver  # noqa: SLF001
    if server._forkserver_alive_fd is not None:  # noqa: SLF001
        os.close(server._forkserver_alive_fd)  # noqa: SLF001
    preload = server._preload_modules  # noqa: SLF001
    server.__init__()
    server.set_forkserver_preload(preload)
    multiprocess.resource_tracker._resource_tracker._lock = threading.RLock()  # noqa: SLF001
    for process in list(_processes):
        process.forget()
    _processes.clear()


os.register_at_fork(after_in_child=_forget_parent)


def _is_gone(server: int) -> bool:
    """Whether a fork server has ended, or does within the moment that this takes to be seen."""
    for _ in range(_ENDING_TRIES):
        try:
            if os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
                return True
        except ChildProcessError:  # it was waited for already, when the next one was started
            return True
        threading.Event().wait(0.01)
    return False


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
            _start(self.process)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.channel = Channel(ours)
        self._server: int = forkserver._forkserver._forkserver_pid  # noqa: SLF001 - as in stop_server
        _processes.add(self)

    def forget(self) -> None:
        """Close what is open here in a child of fork(), where it belongs to the parent."""
        self.channel.close()
        with suppress(OSError):
            os.close(self.process.sentinel)

    def kill(self) -> None:
        """End the process at once; its sentinel reports it as any other death."""
        self.process.kill()

    def reap(self) -> str:
        """Collect a process that ended; return how, in words."""
        self.process.join()
        exitcode = self.process.exitcode
        self.channel.close()
        self.process.close()
        if exitcode == _STATUS_UNKNOWN and _is_gone(self._server):
            return SERVER_KILLED
        return describe_exit(exitcode)


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
            (worker.role, place, body, {**environ, **_ONE_THREAD}),
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
    deadline = time.monotonic() + grace_s
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
    for worker in workers:
        if worker.process.exitcode is None:
            worker.process.kill()
    for worker in workers:
        worker.process.join()
        worker.process.close()
