"""What can happen to a run (events, past tense) and what is to be done about it (commands)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from gepipe.errors import GepipeError
from gepipe.io.failures import Failure
from gepipe.io.sink import Record
from gepipe.io.source import Entry
from gepipe.runtime.memory import Shapes

Outcome: TypeAlias = Record | Failure
Role = Literal["pre", "infer", "post"]


class WorkerId(NamedTuple):
    """A worker's place: its role and its index in the role. A replacement takes the same place."""

    role: Role
    index: int  # type: ignore[assignment] # hides tuple.index, which nobody needs here

    def __str__(self) -> str:
        return f"{self.role} worker {self.index}"


class Fault(NamedTuple):
    """An exception of a worker, as plain values.

    Attributes:
        kind: `ItemError.kind`, or the name of the exception's class.
        text: The message.
        role: The role that is to blame, where it is not the worker's own; or the name of a stage
            of an earlier run that the item failed in.
        fatal: Whether the worker's process ends with it: it can execute nothing any more.
    """

    kind: str
    text: str
    role: str | None = None
    fatal: bool = False


# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Admitted:
    """The source yielded items in answer to `Pull`: as many as asked for, or fewer.

    Attributes:
        entries: The items.
        ended: Whether they were the last.
        seal: Whether the batch that they join is whole with them.
    """

    entries: Sequence[Entry]
    ended: bool
    seal: bool = False


@dataclass(frozen=True, slots=True)
class FeedReady:
    """A source that had nothing to give has something now, or has ended."""


@dataclass(frozen=True, slots=True)
class WaitExpired:
    """The part-filled batch whose first item is `seq` has waited for `max_wait`."""

    seq: int


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker is set up and holds the shared memory."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class Replied:
    """A worker finished its oldest ticket.

    Attributes:
        worker: Who.
        ticket: The ticket's number.
        busy_ns: How long it worked on it.
        results: For each item of a pre or post ticket, its meta or record as bytes, or a `Fault`.
            For an infer ticket one element: empty bytes, or the `Fault` of the whole execution.
        shapes: Row shapes that the worker chose where the layout leaves them open: of the inputs
            for a pre ticket, which has one row then, of the outputs for an infer ticket.
    """

    worker: WorkerId
    ticket: int
    busy_ns: int
    results: Sequence[bytes | Fault]
    shapes: Shapes | None = None


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """A worker's process ended without being asked to.

    Attributes:
        worker: Who.
        cause: In words: "killed by SIGSEGV".
        culprit: Sequence number of the item (for infer: of the first item of the execution) that
            it was working on, or -1.
        hung: It was killed because it exceeded its time limit.
    """

    worker: WorkerId
    cause: str
    culprit: int = -1
    hung: bool = False


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker's place stays empty: what was put there after a death could not be set up.

    Attributes:
        worker: Who.
        error: Why.
    """

    worker: WorkerId
    error: GepipeError


Event: TypeAlias = (
    Admitted | FeedReady | WaitExpired | WorkerReady | Replied | WorkerExited | WorkerLost
)

# --- commands -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pull:
    """Take up to `count` items from the source and answer with `Admitted`."""

    count: int


@dataclass(frozen=True, slots=True)
class Release:
    """Tell the source that pre is done with these items for good."""

    seqs: Sequence[int]


@dataclass(frozen=True, slots=True)
class ArmWait:
    """Start the clock of the part-filled batch whose first item is `seq`, if it is not running.

    To be answered with `WaitExpired` when `max_wait` has passed.
    """

    seq: int


@dataclass(frozen=True, slots=True)
class Write:
    """Have a pre worker write items into rows of an input slot."""

    worker: WorkerId
    ticket: int
    slot: int
    rows: Sequence[int]
    seqs: Sequence[int]
    payloads: Sequence[Any]
    shapes: Shapes | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """Have an infer worker execute the rows [first, last) of an input slot into an output slot."""

    worker: WorkerId
    ticket: int
    input_slot: int
    output_slot: int
    first: int
    last: int
    holes: Sequence[int]
    seq: int
    shapes: Shapes | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """Have a post worker read rows of an output slot and make records of them."""

    worker: WorkerId
    ticket: int
    slot: int
    rows: Sequence[int]
    seqs: Sequence[int]
    metas: Sequence[bytes]
    made: Shapes | None = None


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Put a process in a worker's place that has none: the last one ended, or it is the first."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand outcomes, which are next in input order, to whoever wants them."""

    outcomes: Sequence[Outcome]


@dataclass(frozen=True, slots=True)
class Abort:
    """Stop the run with this error, after what was emitted before."""

    error: GepipeError


Command: TypeAlias = Pull | Release | ArmWait | Write | Run | Read | StartWorker | Emit | Abort
