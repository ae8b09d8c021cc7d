"""What a program did wrong, told on stderr: liberties at once, everything else at its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Report:
    """Rule breaks, liberties and leaks of one program.

    Attributes:
        quiet: Whether to collect only and print nothing.
        breaks: Texts of the rule breaks, each of which was also raised or returned.
        notes: Texts of the liberties that compatible mode allowed, each once.
        leaks: Lists what was not released; asked when the report is printed.
    """

    quiet: bool = False
    breaks: list[str] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)
    leaks: Callable[[], list[str]] = list

    def note(self, text: str) -> None:
        """Tell about a liberty, the first time it is taken."""
        seen = self.notes.get(text, 0)
        self.notes[text] = seen + 1
        if not seen:
            self.say(f"note: {text}")

    def say(self, text: str) -> None:
        """Print a line. Works until the very end of the interpreter."""
        if not self.quiet:
            _write(2, f"acl emulator: {text}\n".encode(errors="backslashreplace"))

    def lines(self) -> list[str]:
        """Return what there is to say at the end of the program."""
        found = [f"rule broken: {text}" for text in self.breaks]
        found += [f"not released: {text}" for text in self.leaks()]
        return found

    def print(self) -> None:
        """Print what there is to say, if there is anything."""
        if lines := self.lines():
            self.say("\n  ".join([f"{len(lines)} problem(s) found", *lines]))


def _write(fd: int, data: bytes, *, write: Callable[[int, bytes], int] = os.write) -> None:
    try:
        write(fd, data)
    except OSError:  # stderr is closed
        return


class LastWords:
    """Prints a report after everything else in the interpreter is gone.

    Many programs release their resources in `__del__`, which runs when modules are torn down, long
    after `atexit`. The attributes of `sys` go last, so an object kept there outlives them all.
    """

    def __init__(self, report: Report) -> None:
        self._print = report.print
        self._pid = os.getpid()
        self._getpid = os.getpid

    def __del__(self) -> None:
        if self._getpid() == self._pid:
            self._print()

    def keep(self) -> None:
        """Live until the interpreter ends."""
        vars(sys).setdefault("_gepipe_emulator_last_words", []).append(self)
