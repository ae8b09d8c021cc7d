"""Faults that the profile asks for."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from gepipe.emulator.profile import Fault


class Faults:
    """Counts calls, and knows which of them go wrong.

    Attributes:
        pending: By thread, the fault of the asynchronous call that the thread is in.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._counts = [0] * len(faults)
        self.pending: dict[int, Fault] = {}

    def due(self, name: str, device: int | None) -> Fault | None:
        """Count a call, and return the fault that it has."""
        due = None
        for at, fault in enumerate(self._faults):
            if fault.call != name or fault.device not in (None, device):
                continue
            self._counts[at] += 1
            if due is None and fault.at <= self._counts[at] < fault.at + fault.times:
                due = fault if _first_time(fault) else None
        return due

    def keep(self, fault: Fault) -> None:
        """Leave a fault for the task that this thread is about to submit."""
        self.pending[threading.get_ident()] = fault

    def take(self) -> Fault | None:
        """Return the fault that this thread left, once."""
        return self.pending.pop(threading.get_ident(), None) if self.pending else None


def _first_time(fault: Fault) -> bool:
    """Whether a fault that strikes once, in whichever process, did not do so yet."""
    if not fault.once_file:
        return True
    try:
        os.close(os.open(fault.once_file, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
    except FileExistsError:
        return False
    return True
