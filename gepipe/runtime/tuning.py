"""Settings of a process of a run that the operating system and the C library understand."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

_M_TRIM_THRESHOLD: Final = -1  # malloc.h
_M_MMAP_THRESHOLD: Final = -3
_MMAP_THRESHOLD_MAX: Final = 32 << 20  # glibc refuses more on 64-bit machines
_PR_SET_PDEATHSIG: Final = 1  # prctl.h
#: Set for the fork server only, so that it does not import from the current folder first; read by
#: Python 3.11 and later.
SAFE_PATH: Final = "PYTHONSAFEPATH"
#: Set for the fork server only: the process that it works for.
SUPERVISOR: Final = "GEPIPE_SUPERVISOR_PID"


def begin_process(environ: Mapping[str, str]) -> None:
    """Do what each process of a run begins with. Its parent is the fork server.

    Args:
        environ: See `take_environment`.
    """
    quiet_signals()
    speak_on_standard_error()
    die_with_parent()
    let_server_end()
    keep_freed_memory()
    take_environment(environ)


def take_environment(environ: Mapping[str, str]) -> None:
    """Set the variables of the supervisor; programs that user code starts inherit them."""
    os.environ.pop(SAFE_PATH, None)
    os.environ.update(environ)


def keep_freed_memory() -> None:
    """Have malloc keep what is freed, instead of giving it back and faulting it in again.

    Measured on 1280x720 JPEG: half of the decoding time went into page faults of fresh buffers.
    A C library without `mallopt` (musl) goes on as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_MAX)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def die_with_parent() -> None:
    """End this process when the process that forked it ends, however busy this one is.

    The parent is the fork server, which has one thread only: the signal's tie to the parent's
    thread does no harm. The fork server itself ends with the supervisor.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:  # it ended before the call
        os._exit(0)


def quiet_signals() -> None:
    """Leave what a terminal sends to the whole process group to the supervisor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))  # where the server did not


def let_server_end() -> None:
    """Let go of the pipe by which the fork server learns that the supervisor is gone.

    Each worker inherits its writing end. A worker that hangs while the supervisor is killed would
    keep the server alive, and with it itself: it ends with the server, see `die_with_parent`.
    """
    from multiprocess import forkserver

    server = forkserver._forkserver  # noqa: SLF001 - no public way exists
    fd, server._forkserver_alive_fd = server._forkserver_alive_fd, None  # noqa: SLF001
    if fd is not None:
        os.close(fd)


def speak_on_standard_error() -> None:
    """Keep what user code and libraries print out of standard output, which is for results."""
    with suppress(OSError):  # started without standard streams
        os.dup2(2, 1)
    if sys.stdout is not None:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
