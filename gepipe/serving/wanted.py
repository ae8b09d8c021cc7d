"""Requests that need not be worked on any more: their time is over, or their client is gone."""

from __future__ import annotations

import math
from typing import Final

from gepipe.errors import ItemError
from gepipe.serving.kinds import CANCELLED, CANCELLED_TEXT
from gepipe.serving.merging import Query

#: Asking the server whether a request was cancelled takes 70 microseconds, its own time and that of
#: this process: only where the work that may be saved takes at least this long.
_WORTH_ASKING_S: Final = 0.005


class Wanted:
    """Looks whether requests are still wanted. One thread uses it; `row_s` is read by others.

    Attributes:
        row_s: How long a row has taken last.
    """

    def __init__(self) -> None:
        self.row_s = math.inf

    def worked(self, rows: int, seconds: float) -> None:
        """Take note of how long so many rows have taken."""
        self.row_s = seconds / max(rows, 1)

    def refusal(self, query: Query) -> ItemError | None:
        """Return why a request need not be worked on, or None."""
        if overdue := query.overdue():
            return overdue
        if query.rows * self.row_s >= _WORTH_ASKING_S and query.request.is_cancelled():
            return ItemError(CANCELLED, CANCELLED_TEXT)
        return None
