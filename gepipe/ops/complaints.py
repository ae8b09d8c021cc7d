"""What a C library says on standard error while it decodes.

libjpeg goes on after damage and only says so there: "Corrupt JPEG data: bad Huffman code". Caught,
the words are a finding about one file; let through, they are noise between the lines of a run. So
are those of libpng and libtiff, which tell the same as the error that follows, or nothing of use.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

#: Of libjpeg's warnings (jerror.h, JWRN_*), those after which pixels are wrong.
_DAMAGE = re.compile(
    rb"premature end of data segment|bad Huffman code|bad arithmetic code"
    rb"|(?P<count>\d+) extraneous bytes before marker"
)
#: So many bytes too many come with sound files of careless cameras; more are a scan whose codes
#: lost their step.
_EXTRANEOUS_MAX = 64


class Complaints:
    """Catches what is written to file descriptor 2 during a call.

    The whole process is meant: use it where there is one thread.

    Attributes:
        last: The last line that was said during the last call, or nothing.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._stderr = os.dup(2)
        self.last = ""

    def during(self, call: Callable[[], T]) -> tuple[T, str]:
        """Call `call`; return its result, and the damage it complained of or nothing."""
        self.last = ""
        os.dup2(self._write, 2)
        try:
            result = call()
        finally:
            os.dup2(self._stderr, 2)
            said = b""
            with suppress(BlockingIOError):
                said = os.read(self._read, 1 << 16)
            if said.strip():
                self.last = _text(said.splitlines()[-1])
        return result, _damage(said) if said else ""

    def close(self) -> None:
        """Close the pipe."""
        for fd in (self._read, self._write, self._stderr):
            os.close(fd)


def _damage(said: bytes) -> str:
    damage = ""
    for line in said.splitlines():
        match = _DAMAGE.search(line)
        if match and int(match["count"] or _EXTRANEOUS_MAX + 1) > _EXTRANEOUS_MAX:
            damage = _text(line)
    return damage


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").strip()
