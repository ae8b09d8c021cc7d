"""Tells when a server has nothing to do any more, although requests are open in it."""

from __future__ import annotations

import math
from typing import TypeAlias

#: Requests that wait or are in work, and how many were executed so far.
Work: TypeAlias = "tuple[int, int]"


class Rest:
    """How long nothing has been done.

    Args:
        enough_s: How long that must be.
    """

    def __init__(self, enough_s: float) -> None:
        self._enough_s = enough_s
        self._executed = -1
        self._since = math.inf

    def lasts(self, now: float, work: Work) -> bool:
        """Take in what there is to do; return whether there has been nothing for long enough."""
        waiting, executed = work
        if waiting or executed != self._executed:
            self._executed, self._since = executed, now
        return now - self._since >= self._enough_s
