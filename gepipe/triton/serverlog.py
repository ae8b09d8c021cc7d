"""The server's own log: followed, kept short, and its complaints without the noise around them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

#: A log is moved to `<name>.1` when it has become this long.
LONGEST: Final = 64 << 20
_MOST_AT_ONCE: Final = 1 << 20
_LAST_LINES: Final = 200
_LINE: Final = re.compile(r"[EF]\d{4} [\d:.]+ \d+ ([\w.-]+:\d+\] .*)")
_TOLD: Final = re.compile(r"^\w+\.py:\d+\]|libprotobuf|Error parsing")
_PLAIN: Final = ("error: ", "[libprotobuf ERROR")
#: What a machine without an NVIDIA card, or a stop, makes it say.
_NOISE: Final = (
    "CudaDriverHelper",
    "NVML",
    "DCGM",
    "pinned system memory",
    "CUDA driver version",
    "CUDA memory pool",
    "no CUDA-capable device",
)


def complaints(lines: Iterable[str]) -> list[str]:
    """Return what the server said at the level of errors, without its prefix."""
    found: list[str] = []
    for line in lines:
        match = _LINE.match(line)
        text = match[1] if match else line if line.startswith(_PLAIN) else ""
        if text and not any(noise in text for noise in _NOISE):
            found.append(text)
    return found


def told(lines: Iterable[str]) -> list[str]:
    """Return the complaints that nobody else tells: of models, and of texts that do not parse."""
    return [text for text in complaints(lines) if _TOLD.search(text)]


def last_complaint(path: Path, start: int) -> str:
    """Return what a server said last at the level of errors, if it did near the end.

    Args:
        path: Its log.
        start: Where its part begins; what is before is of another one.
    """
    try:
        with path.open("rb") as file:
            length = file.seek(0, os.SEEK_END)
            file.seek(start if start <= length else 0)  # one that was moved begins anew
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:  # somebody has removed it
        return ""
    return next(reversed(complaints(lines[-_LAST_LINES:])), "")


class Follower:
    """Reads what is added to a log.

    Args:
        path: The log, which another process adds to; it must be opened for appending.
    """

    def __init__(self, path: Path, start: int = 0) -> None:
        self._path = path
        self._at = start
        self._rest = b""

    def lines(self) -> Sequence[str]:
        """Return the lines that have been added since the last call."""
        try:
            with self._path.open("rb") as file:
                length = file.seek(0, os.SEEK_END)
                self._at = max(self._at, length - _MOST_AT_ONCE)
                file.seek(self._at)
                read = file.read(length - self._at)
        except OSError:
            return ()
        self._at += len(read)
        *whole, self._rest = (self._rest + read).split(b"\n")
        if length > LONGEST:
            self._turn()
        return [line.decode(errors="replace") for line in whole]

    def _turn(self) -> None:
        shutil.copyfile(self._path, self._path.with_name(f"{self._path.name}.1"))
        os.truncate(self._path, 0)  # the server goes on at the new end, because it appends
        self._at = 0
