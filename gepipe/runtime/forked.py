"""A process from the fork server at which several threads may look at once.

`multiprocess` looks at all its processes whenever one is started. Where each supervisor has its own
thread, that is while another thread waits for one of them: both would read its exit status from the
pipe, which holds it once, or from a pipe that took the place of a closed one.

Each new process imports this module, to learn what it is: it imports nothing else of the package.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Final

from multiprocess import connection, context, forkserver, popen_forkserver

#: What `multiprocess` says where the exit status is not known; a process may also end with it.
_UNKNOWN: Final = 255


class _Popen(popen_forkserver.Popen):  # type: ignore[misc] # untyped
    returncode: int | None

    def __init__(self, process: Any) -> None:
        self.lost = False
        self._looking = threading.Lock()
        super().__init__(process)

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        """Return the exit status, or None while there is none; wait for it where `flag` is 0."""
        if flag != os.WNOHANG and self.returncode is None:
            connection.wait([self.sentinel])
        with self._looking:
            if self.returncode is None and connection.wait([self.sentinel], 0):
                try:
                    self.returncode = forkserver.read_signed(self.sentinel)
                except (OSError, EOFError):
                    self.returncode, self.lost = _UNKNOWN, True
            return self.returncode

    def close(self) -> None:
        """Close the pipe."""
        with self._looking:
            super().close()


class ForkedProcess(context.ForkServerProcess):  # type: ignore[misc] # untyped
    """The process."""

    @property
    def is_lost(self) -> bool:
        """Whether it ended with the fork server, which then tells no exit status.

        The pipe from the server says so by its end alone: the server may not be seen to have ended
        yet, however long one looks.
        """
        popen = self._popen
        return popen is not None and popen.poll() is not None and popen.lost

    @staticmethod
    def _Popen(process: Any) -> _Popen:  # noqa: N802 - overrides it
        return _Popen(process)
