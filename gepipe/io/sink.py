"""What a sink is: where results go, in input order, so that a run can be taken up again."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Record(NamedTuple):
    """The result of one input, ready to be written.

    Attributes:
        index: Position of the input in the job.
        source: The input's display text, see `Entry`.
        payload: What the sink's encoder made of the result, in a worker.
    """

    index: int  # type: ignore[assignment] # hides tuple.index, which nobody needs here
    source: str
    payload: bytes


class Mark(NamedTuple):
    """One whole record found in a file.

    Attributes:
        index: Position of the input in the job.
        end: Size of the file up to and including this record.
        raw: The record as it stands in the file.
    """

    index: int  # type: ignore[assignment] # hides tuple.index, which nobody needs here
    end: int
    raw: bytes


class SinkFile(Protocol):
    """A sink's open files, locked for this process. `Outputs` drives it; nobody else does.

    A sink that needs more than results may also have `attach(feed)`, which is shown the feed before
    anything is begun; `see(outcomes)`, which is shown all outcomes, failures too, before they are
    written; and `by_video`, which says that a run can only go on at the first frame of a video.
    """

    def clear(self) -> None:
        """Drop what an earlier run left."""
        ...

    def scan(self) -> Iterator[Mark]:
        """Yield the whole records on disk; stops in front of the first torn one."""
        ...

    def source_of(self, mark: Mark) -> str:
        """Return the source that a record names, as the file spells it."""
        ...

    def spelled(self, source: str) -> str:
        """Return how the file spells `source`."""
        ...

    def cut(self, end: int) -> None:
        """Drop everything behind a mark's `end`; 0 drops all."""
        ...

    def write(self, records: Sequence[Record]) -> None:
        """Append records: indexes ascend, with gaps where inputs failed.

        Raises:
            GepipeError: The disk is full or fails. What is in the file stays an exact prefix.
        """
        ...

    def close(self, *, complete: bool) -> None:
        """Bring everything to the disk; `complete` says that no record will follow, ever."""
        ...


@runtime_checkable
class Sink(Protocol):
    """Where results go. A frozen dataclass of options; `open` gives the files.

    Attributes:
        path: The output file.
    """

    @property
    def path(self) -> str:
        """The output file."""
        ...

    @property
    def encoder(self) -> Callable[..., bytes]:
        """Turns a result into a record's payload; runs in the post workers, so it is picklable.

        One with the attribute `takes_origin` set is given the result's `Origin` too, by which it
        can read the input once more.
        It raises `ItemError` for a result that the sink cannot hold.
        """
        ...

    def open(self) -> SinkFile:
        """Open and lock the output, creating its folder. Nothing in it is changed yet.

        Raises:
            ConfigError: The path cannot be written, or another run is writing it.
        """
        ...
