"""Ctrl-C, SIGTERM and SIGHUP: a run is asked to stop; before there is one, the command ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

from gepipe.errors import Interrupted

if TYPE_CHECKING:
    from gepipe.pipeline.job import Job

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_quietly() -> None:
    """From now on, end with 130 and without a traceback on a signal."""
    _handle(_leave)


@contextmanager
def stopping(job: Job, stopped: Callable[[], None]) -> Iterator[None]:
    """Ask `job` to stop on the first signal; the second one ends at once.

    Workers end with this process, and the files are exact prefixes at any moment, so that even
    the second does no harm.

    Args:
        job: The job.
        stopped: Called on the first signal.

    Raises:
        Interrupted: The signal came before the run began.
    """
    early: Interrupted | None = None

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal early
        _handle(_leave)
        stopped()
        job.request_stop()
        if job.statistics() is None:  # still listing the inputs or opening the files
            early = Interrupted("stopped before the run began")
            raise early

    _handle(stop)
    try:
        yield
    except Exception as error:
        # It may have been raised inside an import or a set-up, which made a fault of theirs of it.
        if early is None or error is early:
            raise
        raise early from error
    finally:
        _handle(_leave)


def _handle(handler: signal._HANDLER) -> None:
    for number in _SIGNALS:
        # What the parent chose to ignore (nohup, a job in the background) stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    show_cursor()
    leave(Interrupted.exit_code)


def show_cursor() -> None:
    """Show the cursor, which a display that was cut off may have hidden."""
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return
    for number in (2, 1):
        with suppress(OSError):
            if os.isatty(number):
                os.write(number, b"\x1b[?25h")
                return


def leave(code: int) -> NoReturn:
    """End this process at once; what it started ends with it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, RuntimeError, ValueError):  # gone, or being written to
            continue
    server = sys.modules.get("gepipe.runtime.forkserver")
    if server is not None and hasattr(server, "remove_folder"):  # it may be half imported
        server.remove_folder()
    os._exit(code)
