"""What can happen to items in a chain of models, and what is to be done about it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

from gepipe.io.failures import Failure
from gepipe.runtime.memory import Shapes
from gepipe.serving.events import Answer, Arrived, Cancelled, Drain

# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Told:
    """A leg has answered.

    Attributes:
        key: What was submitted.
        result: The answer.
        payload: Of the first leg: what stands for the item's payload from here on.
    """

    key: int
    result: bytes | Failure
    payload: Any = None


Event: TypeAlias = Arrived | Cancelled | Drain | Told

# --- commands -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submit:
    """Have a leg process an item or a part. It is answered by `Told`.

    Attributes:
        leg: Which; the last one joins.
        key: No two have the same.
        seq: The item's number.
        payload: What the leg's workers read.
        shapes: Row shapes, where they are known.
        realtime: Its class.
        deadline: When the answer is not wanted any more.
    """

    leg: int
    key: int
    seq: int
    payload: Any
    shapes: Shapes = ()
    realtime: bool = False
    deadline: float = math.inf


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Say that a leg's answer is not wanted any more; it comes nevertheless."""

    key: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Have a leg begin with nothing new, or go on."""

    leg: int
    on: bool


Command: TypeAlias = Submit | Withdraw | Hold | Answer
