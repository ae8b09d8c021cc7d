"""Durations and sizes as people write them: `1.5s`, `64MiB`."""

from __future__ import annotations

import math
import re
from typing import Any, Final

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)", re.ASCII)
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_BYTES: Final = {"": 1, "b": 1} | {
    prefix.lower() + suffix: base**power
    for power, prefix in enumerate("kMGT", start=1)
    for suffix, base in (("", 1000), ("b", 1000), ("ib", 1024))
}
_A_DURATION = "a duration such as 50ms, 1.5s, 2m or 1h (a plain number is seconds)"
_A_SIZE = "a size such as 64MiB, 1GB or 10k (a plain number is bytes)"


def shown(value: Any) -> str:
    """Return a value of a YAML file as an error message quotes it."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            return repr(value if len(value) <= 60 else value[:57] + "...")
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
    return str(value)


def parse_duration(value: Any) -> float:
    """Return seconds.

    Args:
        value: A number of seconds, or text with a unit: `us`, `ms`, `s`, `m` or `min`, `h`.

    Raises:
        ValueError: It is not a duration.
    """
    seconds = _number(value)
    if seconds is None and isinstance(value, str) and (parts := _split(value)):
        number, unit = parts
        if unit in _SECONDS:
            seconds = number * _SECONDS[unit]
        elif not unit:
            seconds = number
    if seconds is None or not 0 <= seconds < math.inf:
        raise ValueError(f"expected {_A_DURATION}, got {shown(value)}")
    return seconds


def parse_timeout(value: Any) -> float:
    """Return seconds, more than none.

    Raises:
        ValueError: It is not a duration, or it is zero.
    """
    seconds = parse_duration(value)
    if seconds == 0:
        raise ValueError("expected a duration of more than 0; leave the key out for the default")
    return seconds


def parse_size(value: Any) -> int:
    """Return bytes.

    Args:
        value: A whole number of bytes, or text with a unit: `k`, `kB`, `KiB`, `M`, `MB`, `MiB` ….

    Raises:
        ValueError: It is not a size.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and (parts := _split(value)):
        number, unit = parts
        factor = _BYTES.get(unit.lower())
        if factor is not None and (number * factor).is_integer():
            return int(number * factor)
    raise ValueError(f"expected {_A_SIZE}, got {shown(value)}")


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _split(text: str) -> tuple[float, str] | None:
    found = _QUANTITY.fullmatch(text.strip())
    return (float(found[1]), found[2]) if found else None
