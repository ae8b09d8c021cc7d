"""What everything else of an emulated machine stands on: settings, clocks, and telling."""

from __future__ import annotations

import threading
from typing import NoReturn

from gepipe.emulator.device import Context
from gepipe.emulator.errors import EmulatorError
from gepipe.emulator.faults import Faults
from gepipe.emulator.handles import Site
from gepipe.emulator.messages import message
from gepipe.emulator.modes import Mode
from gepipe.emulator.order import Access, Clock, merge
from gepipe.emulator.profile import Profile
from gepipe.emulator.report import Report
from gepipe.emulator.schedule import Schedule, Stepped, Threaded


class Thread(threading.local):
    """What ACL keeps for each thread.

    Attributes:
        context: The current context.
        call: The function of `acl` that runs, without `acl.`.
        messages: What `get_recent_err_msg` returns next.
        last_error: What `rt.get_last_error` returns next.
    """

    def __init__(self) -> None:
        self.context: Context | None = None
        self.call = ""
        self.messages: list[str] = []
        self.last_error = 0


class Ground:
    """Settings, clocks and telling.

    Attributes:
        trouble: Whether calls must look closer before they begin: faults, or after a fork.
        host_clock: What the program has waited for. See `gepipe.emulator.order`.
        done: How many tasks of each stream that exists are done.
    """

    def __init__(self, profile: Profile, mode: Mode, report: Report) -> None:
        self.profile = profile
        self.mode = mode
        self.report = report
        self.lock = threading.RLock()
        self.thread = Thread()
        seed = profile.seed
        self.schedule: Schedule = Threaded() if seed is None else Stepped(seed, self.lock)
        self.host_clock: Clock = {}
        self.done: Clock = {}
        self.faults = Faults(profile.faults)
        self.trouble = bool(profile.faults)

    def fail(self, code: int, text: str) -> int:
        """Leave a message for `get_recent_err_msg` and return `code`."""
        thread = self.thread
        thread.messages.append(message(code, thread.call, text))
        del thread.messages[:-16]
        if thread.call.startswith("rt."):
            thread.last_error = code
        return code

    def misuse(self, text: str) -> NoReturn:
        """Refuse what is undefined on hardware."""
        where = self._where()
        self.report.breaks.add(where, text)
        raise EmulatorError(where + text)

    def lenient(self, text: str) -> None:
        """Refuse in strict mode; note in compatible mode."""
        if self.mode is Mode.STRICT:
            self.misuse(text)
        self.note(text)

    def note(self, text: str) -> None:
        """Tell about a liberty, in strict mode too."""
        self.report.note(self._where(), text)

    def _where(self) -> str:
        call = f"acl.{self.thread.call}" if self.thread.call else "acl"
        return f"{call} at {Site()}: "

    @property
    def strict(self) -> bool:
        """Whether the mode is strict."""
        return self.mode is Mode.STRICT

    def race(self, label: str, use: Access) -> None:
        """Refuse two uses that nothing orders; compatible mode does so only if it does harm."""
        verb = "writes" if use.writes else "reads"
        text = (
            f"{label} is not ordered after {use.label}, which {verb} the same bytes; "
            "wait for its stream, or let an event order them"
        )
        if self.done.get(use.stream, use.seq) < use.seq or self.strict:
            self.misuse(text)
        self.note(text)

    def observe(self, clock: Clock) -> None:
        """Note that the program waited for the tasks that `clock` covers."""
        with self.lock:
            merge(self.host_clock, clock)
