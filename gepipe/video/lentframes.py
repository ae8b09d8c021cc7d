"""Frames that a sink's process holds, and the pipe by which they come back."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator

_OFFSET_BYTES = 8


class LentFrames:
    """The reading end of the pipe.

    Attributes:
        count: Frames that are lent.
    """

    def __init__(self, poll: select.epoll) -> None:
        """Lend nothing yet.

        Args:
            poll: Where the pipe is registered.
        """
        self.count = 0
        self._poll = poll
        self._fd = -1
        self._rest = b""
        self._gone: Callable[[], Exception] | None = None

    def open(self, gone: Callable[[], Exception]) -> int:
        """Return the writing end; it is the caller's to close.

        Args:
            gone: Makes the error that says why nobody holds that end any more.
        """
        self._gone = gone
        self._fd, fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._fd, False)
        self._poll.register(self._fd, select.EPOLLIN)
        return fd

    def returned(self) -> Iterator[int]:
        """Yield the offsets of frames that came back. Raises what `gone` makes."""
        while self._fd >= 0:
            try:
                data = os.read(self._fd, 4096)
            except BlockingIOError:
                return
            if not data and self._gone is not None:
                raise self._gone()
            data = self._rest + data
            whole = len(data) - len(data) % _OFFSET_BYTES
            self._rest = data[whole:]
            for offset in memoryview(data)[:whole].cast("q"):
                self.count -= 1
                yield offset

    def close(self) -> None:
        """Close the pipe. Closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
