"""The fork server: where worker processes come from.

Workers are forked from a fork server: a process without threads, model or device, that has only
imported what every worker needs. pyACL forbids fork after it was used, OpenCV and ONNX Runtime do
not survive it; none of them has done anything there. The server is one per Python process, starts
with the first worker and ends with the process that uses it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from shutil import rmtree
from tempfile import gettempdir, mkdtemp
from typing import Any, Final

import multiprocess
import multiprocess.resource_tracker
from multiprocess import forkserver

from gepipe.errors import WorkerStartError
from gepipe.runtime import tuning
from gepipe.runtime.limits import why

#: One thread a process: the thread plan gives cores to processes, not to libraries' pools.
ONE_THREAD: Final = dict.fromkeys(
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
        wake_server()
        stop()


@contextmanager
def _workers_environment() -> Iterator[None]:
    """Set what libraries read when they are imported, which happens in the server."""
    # Without a safe path the server would import from the current folder first, whatever is there.
    wanted = {**ONE_THREAD, tuning.SAFE_PATH: "1", tuning.SUPERVISOR: str(os.getpid())}
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


def server_pid() -> int | None:
    """Return the server's process number; None where there is none."""
    pid: int | None = forkserver._forkserver._forkserver_pid  # noqa: SLF001 - as in stop_server
    return pid


def wake_server() -> None:
    """Let a server go on that was stopped, without which no worker starts, or is seen to end."""
    server = server_pid()
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


def start(process: Any) -> None:
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
            server = server_pid()
            if server is not None:
                with suppress(ChildProcessError):
                    os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
        except OSError as error:
            raise WorkerStartError(
                f"{process.name}: cannot start another process: {why(error)}"
            ) from error
        else:
            return


def _forget_parent() -> None:
    """In a child of fork(): let go of the parent's server, without touching it.

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


os.register_at_fork(after_in_child=_forget_parent)
