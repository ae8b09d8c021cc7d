"""What can happen to a service beside what its workers do, and what it has done for callers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

from gepipe.io.failures import Failure
from gepipe.runtime import events as runtime
from gepipe.runtime.memory import Shapes

# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrived:
    """Somebody wants an item processed.

    Attributes:
        seq: Its number; no two items have the same.
        payload: What a pre worker needs to read it: a plain value, mostly bytes.
        realtime: Whether it goes before those that are not.
        deadline: When its answer is not wanted any more, in the seconds of the caller's clock.
        shapes: Row shapes of its inputs, where the layout leaves them open and they are known.
    """

    seq: int
    payload: Any
    realtime: bool = False
    deadline: float = math.inf
    shapes: Shapes = ()


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The answer is not wanted any more."""

    seq: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Take nothing more; finish what is there."""


@dataclass(frozen=True, slots=True)
class Held:
    """What waits stays where it is, until that is taken back.

    Attributes:
        on: Whether it begins or ends.
    """

    on: bool


Event: TypeAlias = (
    Arrived
    | Cancelled
    | Drain
    | Held
    | runtime.WorkerReady
    | runtime.Replied
    | runtime.WorkerExited
    | runtime.WorkerLost
)

# --- commands -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refusal(Failure):
    """A failure that is no worker's: the service itself has given the item up."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Give an item's record, or why there is none, to who wants it."""

    seq: int
    result: bytes | Failure


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Call `handle` at this time although nothing has happened; replaces the time before."""

    time: float


Command: TypeAlias = (
    Answer
    | WakeAt
    | runtime.Write
    | runtime.Run
    | runtime.Read
    | runtime.StartWorker
    | runtime.Abort
)
