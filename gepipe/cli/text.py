"""Writing to the terminal: names made harmless, and pipes whose reader has left."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Final, TextIO

from gepipe.errors import GepipeError

_NOTES_ON_A_LINE: Final = 2


def harmless(text: str) -> str:
    r"""Return `text` with everything that is no plain character escaped, such as `\x1b`.

    File names may hold control characters that move the cursor, and bytes that are not UTF-8
    (lone surrogates by now), which no terminal can show.
    """
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def harmless_lines(text: str) -> str:
    """Return `text` as `harmless` does, but with its line breaks."""
    return "\n".join(harmless(line.expandtabs(4)) for line in text.splitlines())


def spread(heading: str, notes: Sequence[str]) -> list[str]:
    """Return a heading and what belongs to it: on its line where that is little, else below it."""
    if len(notes) <= _NOTES_ON_A_LINE:
        return ["; ".join((heading, *notes))]
    return [heading, *(f"  {note}" for note in notes)]


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def occupy_standard_streams() -> None:
    """Open descriptors 0 to 2 where this process was started without them.

    A file opened later would get their number, and what a library says on standard error would
    stand in the results.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is there, as it need not be, and a person may be looking at it."""
    return stream is not None and stream.isatty()


def print_out(text: str) -> None:
    """Write a line to standard output; a reader that has left, as `head` does, is no error.

    Raises:
        GepipeError: The line cannot be kept where standard output goes, as on a full disk.
    """
    error = _write(sys.stdout, text)
    if error is not None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        raise GepipeError(f"cannot write to standard output: {os.strerror(error.errno).lower()}")


def print_error(text: str) -> None:
    """Write a line to standard error; a terminal that is gone is no error."""
    _write(sys.stderr, text)


def _write(stream: TextIO | None, text: str) -> OSError | None:
    """Write a line; return what went wrong, after which the stream leads nowhere."""
    if stream is None:  # started without one, as some services are
        return None
    try:
        stream.write(text + "\n")
        stream.flush()
    except OSError as error:
        # Whatever is left in the buffer must not fail again when the interpreter ends.
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, stream.fileno())
        os.close(devnull)
        return error
    return None


def cut(text: str, width: int) -> str:
    """Shorten `text` to `width` characters; its end, where file names differ, is kept."""
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :]


def count(number: int, noun: str, plural: str = "") -> str:
    """Return `1 item`, `2 items`, `1,000 items`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size(nbytes: int) -> str:
    """Return a size in words, such as `9.6 MiB`."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def duration(seconds: float) -> str:
    """Return a time in words, such as `0.42 s`, `12 s`, `3:07` or `1:02:30`."""
    if seconds < 60:
        digits = 0 if seconds >= 10 or seconds == int(seconds) else 2
        return f"{seconds:.{digits}f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
