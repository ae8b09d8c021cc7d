"""Those who wait for an answer: each is told exactly once."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable

from gepipe.io.failures import Failure
from gepipe.serving.events import Refusal
from gepipe.serving.kinds import UNAVAILABLE

log = logging.getLogger(__name__)


class Answers:
    """What to call with the answer of each item. Any thread may use it."""

    def __init__(self, stage: str) -> None:
        """Begin with none; `stage` is named in refusals."""
        self._stage = stage
        self._seqs = itertools.count()
        self._waiting: dict[int, Callable[[bytes | Failure], None]] = {}

    def expect(self, answer: Callable[[bytes | Failure], None]) -> int:
        """Return the number of an item, whose answer is given to `answer`."""
        seq = next(self._seqs)
        self._waiting[seq] = answer
        return seq

    def give(self, seq: int, result: bytes | Failure) -> None:
        """Answer an item, unless that is done. Never raises."""
        answer = self._waiting.pop(seq, None)
        if answer is None:
            return
        try:
            answer(result)
        except Exception:
            log.exception("an answer could not be given")

    def refuse(self, why: str) -> None:
        """Answer all who still wait."""
        for seq in list(self._waiting):
            self.give(seq, Refusal(seq, "", self._stage, UNAVAILABLE, why))
