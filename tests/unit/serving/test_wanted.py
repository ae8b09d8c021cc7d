from __future__ import annotations

import math
import time

from gepipe.serving.merging import Query
from gepipe.serving.wanted import Wanted


class Request:
    """A request of the server's, which counts who asks whether it was cancelled."""

    def __init__(self, *, cancelled: bool = False, timeout_us: int = 0) -> None:
        self.asked = 0
        self._cancelled, self._timeout_us = cancelled, timeout_us

    def timeout(self) -> int:
        return self._timeout_us

    def is_cancelled(self) -> bool:
        self.asked += 1
        return self._cancelled


def refused(subject: Wanted, request: Request, rows: int = 1, began: float = math.inf) -> str:
    error = subject.refusal(Query(request=request, rows=rows, began=began))
    return "" if error is None else error.kind


def test_what_may_take_long_is_asked_for() -> None:
    assert refused(Wanted(), Request(cancelled=True)) == "cancelled"  # nobody knows yet
    assert not refused(Wanted(), Request())

    subject = Wanted()
    subject.worked(2, 0.012)
    assert refused(subject, Request(cancelled=True)) == "cancelled"


def test_what_takes_less_than_asking_is_worth_is_done_without() -> None:
    subject = Wanted()
    subject.worked(4, 0.008)

    request = Request(cancelled=True)
    assert not refused(subject, request)
    assert not request.asked
    assert refused(subject, request, rows=3) == "cancelled"


def test_what_is_over_its_time_is_refused_without_asking() -> None:
    request = Request(cancelled=True, timeout_us=1000)

    assert refused(Wanted(), request, began=time.monotonic() - 1) == "expired"
    assert not request.asked


def test_work_on_no_rows_says_nothing_against_others() -> None:
    subject = Wanted()
    subject.worked(0, 0.02)
    assert refused(subject, Request(cancelled=True)) == "cancelled"
