"""Notices that a model was loaded anew while calls waited for its answers.

When the process of a model dies, the server never answers what was in it: whoever called waits for
the limit of the call. But the model is loaded again, and that shows: for a moment it is not there,
and then it counts its requests from the beginning. A new version in place of an old one shows in
the same way, and there the old one does answer what it has; so the calls are given a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gepipe.triton.connection import Connection

_EVERY_S: Final = 0.5
#: How long a model that was replaced may take for the calls that it has.
_WHILE_S: Final = 2.0


class Lookout:
    """Asks a server twice a second how many requests a model has taken."""

    def __init__(
        self, connection: Connection, model: str, replaced: Callable[[float], None]
    ) -> None:
        """Begin.

        Args:
            connection: To the server, open; closed at the end.
            model: Which model.
            replaced: Told that it was replaced, with the time: calls that began before and are
                still without an answer will not get one. Called in the lookout's thread.
        """
        self._connection = connection
        self._model = model
        self._replaced = replaced
        self._count: int | None = None
        self._since: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="lookout", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End; a question that is under way is not waited for."""
        self._ended.set()

    def _look(self) -> None:
        try:
            while not self._ended.wait(_EVERY_S):
                with suppress(TimeoutError):
                    self.take(time.monotonic(), self._connection.taken(self._model))
        finally:
            self._connection.close()

    def take(self, now: float, count: int | None) -> None:
        """Take in how many requests the model has taken since it was loaded; None: it is not."""
        before, self._count = self._count, count
        if before is not None and (count is None or count < before):
            self._since = now
        if self._since is not None and now - self._since >= _WHILE_S:
            since, self._since = self._since, None
            self._replaced(since)
