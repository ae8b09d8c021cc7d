"""A signal during a conversion ends the converter and tidies up, before it ends this process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NoReturn

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


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    raise Interrupted(f"the conversion was stopped by {signal.Signals(number).name}")
