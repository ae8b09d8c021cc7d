"""What happens before what: clocks of streams and the host, and the races they reveal.

A clock maps a stream's number to how many of its tasks are known to be done. A task knows those
before it on its stream, those before each event that its stream waited for, and those that the
host had waited for when it submitted the task. Two uses of the same bytes, one of them a write,
must be ordered by these clocks. So a race is found even when, by luck, it did no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Clock = dict[int, int]


def merge(into: Clock, other: Clock) -> None:
    """Let `into` know what `other` knows."""
    for stream, seq in other.items():
        if into.get(stream, 0) < seq:
            into[stream] = seq


@dataclass(slots=True)
class Access:
    """One task's use of some bytes.

    Attributes:
        stream: Number of the task's stream.
        seq: Number of the task on its stream.
        first: First byte.
        last: Byte behind the last one.
        writes: Whether it writes.
        label: The task, as messages name it.
    """

    stream: int
    seq: int
    first: int
    last: int
    writes: bool
    label: str


@dataclass(slots=True)
class Uses:
    """The unfinished uses of one thing: a block of memory, a model, a dataset."""

    accesses: list[Access] = field(default_factory=list)

    def add(self, new: Access) -> None:
        """Remember a use; it stands for earlier ones of its stream that it covers."""
        if self.accesses:
            self.accesses = [
                use
                for use in self.accesses
                if use.stream != new.stream
                or use.first < new.first
                or use.last > new.last
                or (use.writes and not new.writes)
            ]
        self.accesses.append(new)

    def conflict(
        self, host: Clock, own: Clock, first: int, last: int, *, writes: bool
    ) -> Access | None:
        """Return a use that a new use of bytes [first, last) is not ordered after.

        Args:
            host: What the host has waited for; what it covers is forgotten.
            own: What the new user knows.
            first: First byte.
            last: Byte behind the last one.
            writes: Whether the new use writes.
        """
        if not self.accesses:
            return None
        self.accesses = [use for use in self.accesses if host.get(use.stream, 0) < use.seq]
        for use in self.accesses:
            if (
                (writes or use.writes)
                and use.first < last
                and first < use.last
                and own.get(use.stream, 0) < use.seq
            ):
                return use
        return None
