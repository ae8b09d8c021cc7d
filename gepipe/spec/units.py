"""Quantities with a unit as people write them: durations, sizes and failure limits."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import PlainSerializer, PlainValidator

from gepipe.quantities import parse_duration, parse_size, parse_timeout, shown

__all__ = [
    "DURATION_PATTERN",
    "PERCENT_PATTERN",
    "Duration",
    "FailureLimit",
    "Failures",
    "Size",
    "Timeout",
    "parse_duration",
    "parse_failures",
    "parse_size",
    "parse_timeout",
    "shown",
]

_A_LIMIT = "a number of items such as 100, or a share of them such as 1%"

# For a JSON schema: the text forms of the three quantities.
DURATION_PATTERN: Final = r"^\s*([0-9]+(\.[0-9]*)?|\.[0-9]+)\s*(us|ms|s|m|min|h)?\s*$"
PERCENT_PATTERN: Final = r"^\s*([0-9]+(\.[0-9]*)?|\.[0-9]+)\s*%\s*$"


@dataclass(frozen=True, slots=True)
class FailureLimit:
    """How many failed items a run bears before it stops.

    Attributes:
        count: Number of items, or None where the limit is a share.
        percent: Share of all items in percent, or None where the limit is a number.
    """

    count: int | None = None
    percent: float | None = None

    def allowed(self, total: int) -> int:
        """Return how many of `total` items may fail."""
        if self.percent is not None:
            return math.floor(total * self.percent / 100)
        return self.count or 0

    def __str__(self) -> str:
        return str(self.count) if self.percent is None else f"{self.percent!r}%"


def parse_failures(value: Any) -> FailureLimit:
    """Return a failure limit.

    Args:
        value: A whole number of items, or text such as `1%`.

    Raises:
        ValueError: It is neither.
    """
    if isinstance(value, FailureLimit):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return FailureLimit(count=value)
    if isinstance(value, str) and re.match(PERCENT_PATTERN, value, re.ASCII):
        percent = float(value.strip()[:-1])
        if percent <= 100:
            return FailureLimit(percent=percent)
    raise ValueError(f"expected {_A_LIMIT}, got {shown(value)}")


def _plain_limit(limit: FailureLimit) -> int | str:
    return str(limit) if limit.count is None else limit.count


#: Seconds; 0 is allowed.
Duration = Annotated[float, PlainValidator(parse_duration)]
#: Seconds, more than 0.
Timeout = Annotated[float, PlainValidator(parse_timeout)]
#: Bytes.
Size = Annotated[int, PlainValidator(parse_size)]
#: A number or a share of the items.
Failures = Annotated[FailureLimit, PlainValidator(parse_failures), PlainSerializer(_plain_limit)]
