"""What the kernel tells of a server's processes."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A child of the server.

    Attributes:
        pid: Its number.
        state: As the kernel writes it: `R`, `S`, `T` (stopped), `Z` (dead, not collected) …
        command: Its words; empty once it is dead.
    """

    pid: int
    state: str
    command: tuple[str, ...]


def children_of(pid: int) -> list[Process]:
    """Return the direct children of a process."""
    found: list[Process] = []
    tasks = f"/proc/{pid}/task"
    with suppress(OSError):
        for task in os.listdir(tasks):  # noqa: PTH208 - a hundred, several times a second
            with suppress(OSError), open(f"{tasks}/{task}/children", "rb", 0) as file:  # noqa: PTH123
                pids = map(int, file.read().split())
                found += [Process(child, state_of(child), command_of(child)) for child in pids]
    return found


def state_of(pid: int) -> str:
    """Return the state of a process; `X` if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return "X"
    return text.rpartition(")")[2].split()[0]


def command_of(pid: int) -> tuple[str, ...]:
    """Return the words of a process's command; none if it is gone, or not ours to see."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(raw.decode(errors="replace").rstrip("\0").split("\0")) if raw else ()


def resumed(pid: int) -> bool:
    """Let a process go on if somebody has stopped it; return whether that was so."""
    if state_of(pid) != "T":
        return False
    with suppress(OSError):
        os.kill(pid, signal.SIGCONT)
    return True
