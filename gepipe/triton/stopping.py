"""Ctrl-C, SIGTERM and SIGHUP: the first asks a server to stop, the second ends it at once."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Final

from typing_extensions import Self

from gepipe.triton.bell import Bell

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Counts the signals that ask for an end, while the context lasts; main thread only.

    Attributes:
        bell: Rings with each of them.
    """

    def __init__(self) -> None:
        self.bell = Bell()
        self._count = 0
        self._before: dict[int, Any] = {}

    def is_asked(self) -> bool:
        """Whether a signal came."""
        return self._count > 0

    def is_urgent(self) -> bool:
        """Whether a second one came."""
        return self._count > 1

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            # What the parent chose to ignore (nohup, a job in the background) stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._came)
        return self

    def _came(self, _number: int, _frame: FrameType | None) -> None:
        self._count += 1
        self.bell.ring()

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self.bell.close()
