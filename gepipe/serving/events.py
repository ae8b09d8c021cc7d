"""What can happen to a service beside what its workers do, and what it has done for callers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

from gepipe.io.failures import Failure
from gepipe.runtime import events as runtime

# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrived:
    """Somebody wants an item processed.

    Attributes:
        seq: Its number; no two items have the same.
        payload: What a pre worker needs to read it: a plain value, mostly bytes.
        realtime: Whether it goes before those that are not.
        deadline: When its answer is not wanted any more, in the seconds of the caller's clock.
    """

    seq: int
    payload: Any
    realtime: bool = False
    deadline: float = math.inf


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The answer is not wanted any more."""

    seq: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Take nothing more; finish what is there."""


Event: TypeAlias = (
    Arrived
    | Cancelled
    | Drain
    | runtime.WorkerReady
    | runtime.Replied
    | runtime.WorkerExited
    | runtime.WorkerLost
)

# --- commands -------------------------------------------------------------------------------------


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
