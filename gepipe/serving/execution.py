"""Requests executed on a host: merged into its slot, tried again, told apart when one is bad.

A request that is executed alone is not copied into the slot if the process of the model can read it
where the server has put it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from gepipe.errors import BackendError, GepipeError
from gepipe.runtime.lent import LentRows
from gepipe.serving.host import ExecutionError, ModelHost
from gepipe.serving.merging import Query, Span, pack
from gepipe.serving.server_memory import ServerMemory

#: Kinds of failures that are the device's, whichever rows it was given.
_DEVICES: Final = frozenset(
    {"device", "device_lost", "device_memory", "device_state", "timeout", "unavailable"}
)
#: Processes that may be lost while the bad one of several requests is looked for.
_LOSSES: Final = 12


class Execution:
    """One call of the server, in which several requests are answered."""

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        host: ModelHost,
        *,
        capacity: int,
        merged: bool,
        is_unwanted: Callable[[Query], GepipeError | None],
        report: Callable[[int, float, float, int], None],
        memory: ServerMemory | None = None,
    ) -> None:
        """Prepare.

        Args:
            host: Where the model is open.
            capacity: Rows of its slot.
            merged: Whether requests may share an execution.
            is_unwanted: Returns why a request need not be executed any more, or None.
            report: Called after each execution with its rows, when it began and how long it took in
                seconds, and how long the device was busy in nanoseconds.
            memory: Where the server puts what requests carry; None if their rows are elsewhere.
        """
        self._host = host
        self._capacity, self._merged = capacity, merged
        self._is_unwanted, self._report = is_unwanted, report
        self._memory = memory
        self._losses = host.losses

    def run(self, queries: Sequence[Query], *, kept: bool = False) -> None:
        """Execute requests; each has its outputs, or its error, afterwards.

        Args:
            queries: The requests.
            kept: Whether the outputs must outlive the next execution; otherwise they are views into
                the slot where nothing is executed behind them.
        """
        slots = list(pack(queries, self._capacity, merged=self._merged))
        for number, spans in enumerate(slots):
            lent = self._lent(spans)
            if lent is None:
                self._fill(spans)
            self._attempt(spans, lent, tries=2)
            self._gather(spans, copied=kept or number + 1 < len(slots))

    def _lent(self, spans: Sequence[Span]) -> LentRows | None:
        """Return where the rows of a request lie that has a slot to itself."""
        if self._memory is None or len(spans) > 1:
            return None
        ((query, start, _, rows),) = spans
        return self._memory.find([
            query.arrays[name][start : start + rows] for name in self._host.inputs
        ])  # fmt: skip

    def _fill(self, spans: Sequence[Span]) -> None:
        inputs = self._host.inputs
        for query, start, first, rows in spans:
            for name, slot in inputs.items():
                slot[first : first + rows] = query.arrays[name][start : start + rows]

    def _gather(self, spans: Sequence[Span], *, copied: bool) -> None:
        outputs = self._host.outputs
        for query, _, first, rows in spans:
            if query.error is not None:
                continue
            for name, slot in outputs.items():
                view = slot[first : first + rows]
                query.pieces.setdefault(name, []).append(view.copy() if copied else view)

    def _attempt(self, spans: Sequence[Span], lent: LentRows | None, *, tries: int) -> None:
        """Execute a slot's rows: twice whole, then halves until the culprit is found."""
        spans = [span for span in spans if self._is_wanted(span.query)]
        if not spans:
            return
        first, last = spans[0].first, spans[-1].last
        began = time.monotonic()
        try:
            busy_ns = self._host.execute(first, last, lent)
        except ExecutionError as error:
            if tries > 1 and error.kind != "unavailable":
                self._attempt(spans, lent, tries=tries - 1)
            elif self._may_halve(spans, error):
                middle = len(spans) // 2
                self._attempt(spans[:middle], None, tries=1)
                self._attempt(spans[middle:], None, tries=1)
            else:
                self._fail(spans, error)
        except BackendError as error:
            self._fail(spans, error)
        else:
            self._report(last - first, began, time.monotonic() - began, busy_ns)

    def _is_wanted(self, query: Query) -> bool:
        query.error = query.error or self._is_unwanted(query)
        return query.error is None

    def _may_halve(self, spans: Sequence[Span], error: ExecutionError) -> bool:
        lost = self._host.losses - self._losses
        return len(spans) > 1 and error.kind not in _DEVICES and lost < _LOSSES

    @staticmethod
    def _fail(spans: Sequence[Span], error: Any) -> None:
        for span in spans:
            span.query.error = error.with_traceback(None)  # its frames would keep the slot alive
