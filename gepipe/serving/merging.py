"""Requests as rows of slots: checked, packed one behind the other, split where too long."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from gepipe.errors import GepipeError, ItemError
from gepipe.serving.kinds import EXPIRED
from gepipe.tensors import TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(slots=True, eq=False)
class Query:
    """What one request queries for.

    Attributes:
        arrays: Input name to (rows, …) array.
        rows: How many rows it has.
        pieces: Output name to the arrays made so far, in the order of the rows.
        error: Why it is refused, or failed.
        request: The server's request.
        sender: What sends its response, where it is not returned.
        began: When the server handed it over, on the monotonic clock.
    """

    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    rows: int = 0
    pieces: dict[str, list[NDArray[Any]]] = field(default_factory=dict)
    error: GepipeError | None = None
    request: Any = None
    sender: Any = None
    began: float = 0.0

    def overdue(self) -> ItemError | None:
        """Return why it need not be answered any more, if its own time limit has passed."""
        limit_s = self.request.timeout() / 1e6
        if limit_s and time.monotonic() - self.began > limit_s:
            return ItemError(EXPIRED, f"the request's timeout of {limit_s:g} s has passed")
        return None


class Span(NamedTuple):
    """Some rows of a request in a slot.

    Attributes:
        query: Whose rows.
        start: Which of its rows is the first.
        first: In which row of the slot that lies.
        rows: How many.
    """

    query: Query
    start: int
    first: int
    rows: int

    @property
    def last(self) -> int:
        """The row of the slot behind them."""
        return self.first + self.rows


def pack(queries: Sequence[Query], capacity: int, *, merged: bool) -> Iterator[list[Span]]:
    """Yield what each slot is filled with.

    Args:
        queries: The requests, in order; those of no rows need none.
        capacity: Rows of a slot.
        merged: Whether several requests may share a slot. A request that fits into a slot is never
            cut in two.
    """
    spans: list[Span] = []
    used = 0
    for query in queries:
        if spans and (not merged or used + query.rows > capacity):
            yield spans
            spans, used = [], 0
        for start in range(0, query.rows, capacity):
            if start:
                yield spans
                spans, used = [], 0
            rows = min(capacity, query.rows - start)
            spans.append(Span(query, start, used, rows))
            used += rows
    if spans:
        yield spans


def checked_rows(arrays: Mapping[str, NDArray[Any]], specs: Sequence[TensorSpec]) -> int:
    """Return how many rows a request has.

    Args:
        arrays: Its tensors by name.
        specs: Row specs of the model's inputs.

    Raises:
        ItemError: `shape`: a tensor is missing, or is not what the model takes.
    """
    counts = {}
    for spec in specs:
        array = arrays.get(spec.name)
        if array is None:
            raise ItemError("shape", f"input {spec.name!r} is missing")
        if array.dtype.name != spec.dtype or not array.shape or array.shape[1:] != spec.shape:
            dims = ", ".join(map(str, ("rows", *spec.shape)))
            raise ItemError(
                "shape",
                f"input {spec.name!r} is {array.dtype.name} {list(array.shape)}; expected "
                f"{spec.dtype} [{dims}]",
            )
        counts[spec.name] = array.shape[0]
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name!r} has {count}" for name, count in counts.items())
        raise ItemError("shape", f"the inputs differ in rows: {listed}")
    return int(next(iter(counts.values())))
