"""Cutting a batch into executions of the sizes that a model takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Portion(NamedTuple):
    """One execution.

    Attributes:
        first: Row of the batch that it begins with.
        count: Rows that hold items.
        gear: Rows that are executed; `gear - count` of them are padding.
    """

    first: int
    count: int  # type: ignore[assignment] # hides tuple.count, which nobody needs here
    gear: int


def portions(count: int, gears: Sequence[int]) -> Iterator[Portion]:
    """Cut `count` rows into executions.

    Args:
        count: Rows that hold items, at least 1.
        gears: Batch sizes that the model takes, ascending; empty means any.

    Yields:
        As many of the largest gear as fit, then the smallest gear that holds the rest.
    """
    if not gears:
        yield Portion(0, count, count)
        return
    first = 0
    while first < count:
        left = count - first
        gear = next((gear for gear in gears if gear >= left), gears[-1])
        yield Portion(first, min(left, gear), gear)
        first += gear
