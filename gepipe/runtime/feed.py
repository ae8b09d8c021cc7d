"""Where the supervisor takes items from: it must never wait for them."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gepipe.io.source import Entry
from gepipe.runtime.limits import told

if TYPE_CHECKING:
    from gepipe.runtime.events import Outcome
    from gepipe.runtime.memory import SharedBuffer


class Portion(NamedTuple):
    """What a feed gives at once.

    Attributes:
        entries: The next items.
        ended: Whether they are the last.
        seal: Whether the batch that they join is whole with them: nothing else joins it.
    """

    entries: list[Entry]
    ended: bool = False
    seal: bool = False


class Feed(ABC):
    """Items in order. Either all of them tell their row shapes, or none does.

    All that has one row shape in a batch: what is next and has another must be preceded by a seal.

    Attributes:
        total: How many there will be, or None if that is not known.
        live: Whether items come when they like, so that a part-filled batch leaves after a while
            instead of waiting for more. Of a feed that is not, equal runs have equal batches.
        memory: What payloads point into, handed to the workers of pre and post; None for nothing.
    """

    total: int | None
    live: bool = False
    memory: SharedBuffer | None = None

    @abstractmethod
    def take(self, count: int) -> Portion:
        """Return up to `count` items without waiting.

        Raises whatever the source raised.
        """

    def used(self, seqs: Sequence[int]) -> None:  # noqa: B027 - most have nothing to do
        """Learn that pre is done with items for good. Called only of a feed with a memory."""

    def settled(self, outcomes: Sequence[Outcome]) -> None:  # noqa: B027 - likewise
        """Learn of outcomes that were emitted."""

    @abstractmethod
    def fileno(self) -> int:
        """A descriptor that becomes readable when an empty feed has something to give, or -1."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the source."""


class ListedFeed(Feed):
    """Items that are listed already: all there is comes at once."""

    def __init__(self, entries: Iterator[Entry], total: int) -> None:
        self.total: int | None = total
        self._entries = entries
        self._left = total

    def take(self, count: int) -> Portion:
        """Return the next items; see `Feed.take`."""
        taken = [entry for _, entry in zip(range(min(count, self._left)), self._entries)]  # noqa: B905 - the range ends first
        self._left -= len(taken)
        return Portion(taken, self._left == 0)

    def fileno(self) -> int:
        """Never empty before its end, so there is nothing to wait for."""
        return -1

    def close(self) -> None:
        """Nothing to let go of."""


class ThreadedFeed(Feed):
    """Items of an iterable that may take its time, such as a generator, pulled by a thread.

    At most `ahead` items are pulled before they are asked for.
    """

    live = True

    def __init__(self, entries: Iterable[Entry], *, ahead: int) -> None:
        self.total: int | None = None
        self._entries = entries
        self._ahead = ahead
        self._ready: deque[Entry] = deque()
        self._error: BaseException | None = None
        self._ended = self._closed = False
        self._condition = threading.Condition()
        self._thread = threading.Thread(target=self._pull, name="gepipe feed", daemon=True)
        with told("cannot draw from the inputs"):
            self._read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            self._thread.start()

    def _pull(self) -> None:
        try:
            for entry in self._entries:
                with self._condition:
                    self._ready.append(entry)
                    self._wake()
                    while len(self._ready) >= self._ahead and not self._closed:
                        self._condition.wait()
                    if self._closed:
                        return
        except BaseException as error:  # noqa: BLE001 - raised again where the items are taken
            self._error = error
        with self._condition:
            self._ended = True
            self._wake()

    def _wake(self) -> None:
        if not self._closed and (len(self._ready) == 1 or self._ended):
            with suppress(BlockingIOError):  # a full pipe is readable, which is all that matters
                os.write(self._write_fd, b"\0")

    def take(self, count: int) -> Portion:
        """Return what is there; see `Feed.take`."""
        with self._condition:
            with suppress(BlockingIOError):
                os.read(self._read_fd, 4096)
            taken = [self._ready.popleft() for _ in range(min(count, len(self._ready)))]
            self._condition.notify()
            ended = self._ended and not self._ready
            if ended and self._error is not None:
                if not taken:
                    raise self._error
                ended = False  # the next call raises; first, what came before the error
            if self._ready or (self._ended and not ended):
                os.write(self._write_fd, b"\0")
            return Portion(taken, ended)

    def fileno(self) -> int:
        """Readable while there are items, or the end, that were not taken."""
        return self._read_fd

    def close(self) -> None:
        """Stop pulling. A thread that is inside the iterable ends when that returns."""
        with self._condition:
            if self._closed:
                return
            self._closed = True
            self._condition.notify()
            os.close(self._read_fd)
            os.close(self._write_fd)
        self._thread.join(0.2)
