"""What a program did wrong, told on stderr: liberties at once, everything else at its end."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

_NUMBERS: Final = re.compile(r"0x[0-9a-f]+|\d+")


class Tally:
    """Texts with how often each came up; those that differ in numbers only count as one.

    A program that goes round in circles breaks a rule at other addresses in every turn.
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, int]] = {}

    def add(self, where: str, text: str) -> bool:
        """Count a text that belongs to a place; return whether it is the first of its kind."""
        kind = where + _NUMBERS.sub("#", text)
        first, times = self._found.get(kind, (f"{where}{text}", 0))
        self._found[kind] = first, times + 1
        return not times

    def __iter__(self) -> Iterator[str]:
        """Yield each kind by its first text."""
        for text, times in list(self._found.values()):
            yield text if times == 1 else f"{text} ({times} times)"

    def __len__(self) -> int:
        """Return how many kinds there are."""
        return len(self._found)


@dataclass(slots=True)
class Report:
    """Rule breaks, liberties and leaks of one program.

    Attributes:
        quiet: Whether to collect only and print nothing.
        breaks: The rule breaks, each of which was also raised or returned.
        notes: The liberties that compatible mode allowed.
        leaks: Lists what was not released; asked when the report is printed.
    """

    quiet: bool = False
    breaks: Tally = field(default_factory=Tally)
    notes: Tally = field(default_factory=Tally)
    leaks: Callable[[], list[str]] = list

    def note(self, where: str, text: str) -> None:
        """Tell about a liberty, the first time it is taken at a place."""
        if self.notes.add(where, text):
            self.say(f"note: {where}{text}")

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
