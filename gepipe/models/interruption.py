"""A signal during a conversion ends the converter and tidies up, before it ends this process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from gepipe.errors import Interrupted

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def tidy_when_stopped() -> Iterator[None]:
    """Raise for signals whose handler would end the process at once, as the command line's do.

    Elsewhere than in the main thread, and for Python's own handlers, nothing changes.

    Raises:
        Interrupted: Such a signal came.
    """
    replaced: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler) and handler is not signal.default_int_handler:
                replaced[number] = handler
    for number in replaced:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)


#: Signals that came while `put_off` was in force; None while it is not.
_waiting: list[int] | None = None


@contextmanager
def put_off() -> Iterator[None]:
    """Let a signal wait for the end of a step that must not be cut in two.

    A process is started so: cut between its birth and the return of the call, nobody knew its pid.
    """
    global _waiting  # noqa: PLW0603 - signals belong to the whole process
    _waiting = []
    try:
        yield
    finally:
        came, _waiting = _waiting, None
    for number in came:
        _stop(number, None)


def _stop(number: int, _frame: FrameType | None) -> None:
    if _waiting is not None:
        _waiting.append(number)
        return
    raise Interrupted(f"the conversion was stopped by {signal.Signals(number).name}")
