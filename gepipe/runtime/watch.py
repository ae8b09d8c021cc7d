"""Notices workers that take too long."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from gepipe.runtime.events import Role, WorkerId

#: A worker that holds a ticket and has not even begun it is given this long beyond its limit: the
#: machine may be busy, but a stopped process must not hold up the run for ever.
_UNBEGUN_S: Final = 10.0
#: How often the supervisor is to look at the clock while a limit runs, to notice that it slept.
HEARTBEAT_S: Final = 1.0
#: A supervisor that comes to look this much later than it meant to was not just busy.
_OVERSLEPT_S: Final = 2.0
#: Gaps that are remembered; a ticket rarely outlasts one.
_GAPS_MAX: Final = 64


class Watch:
    """Time limits of workers that hold tickets.

    Dealing and replying cost one dictionary write each; only `late`, which is called when the
    earliest limit may have passed, looks at all workers.

    Limits do not run while the supervisor does not: it was stopped by Ctrl-Z, its container was
    frozen or its machine paused, or a consumer of results held it up. The workers may have been
    stopped too, and what they have answered since is still unread.

    Attributes:
        next_look: When `late` should be called, on the monotonic clock; never too late.
    """

    def __init__(self, limits_s: Mapping[Role, float]) -> None:
        self._limits_s = limits_s
        self._held: dict[WorkerId, int] = {}
        self._since: dict[WorkerId, float] = {}
        self._deadline: dict[WorkerId, float] = {}
        self._gaps: deque[tuple[float, float]] = deque(maxlen=_GAPS_MAX)
        self.next_look = math.inf

    def looked(self, before: float, due: float, now: float) -> None:
        """The supervisor, which last looked `before` and meant to look by `due`, looks `now`.

        All on the monotonic clock. When in between it fell asleep, nobody knows.
        """
        if now - due < _OVERSLEPT_S:
            return
        self._gaps.append((before, now))
        for worker in self._deadline:
            self._deadline[worker] += now - before
        self.next_look += now - before

    def _slept(self, since: float) -> float:
        return sum(max(0.0, end - max(begin, since)) for begin, end in self._gaps)

    def starting(self, worker: WorkerId, limit_s: float) -> None:
        """A process was started; it has `limit_s` to become ready."""
        self._held[worker] = 0
        self._set(worker, limit_s)

    def idle(self, worker: WorkerId) -> None:
        """A worker holds nothing: it became ready, or it ended."""
        self._held[worker] = 0
        self._deadline.pop(worker, None)

    def dealt(self, worker: WorkerId) -> None:
        """A worker got a ticket."""
        self._held[worker] += 1
        if self._held[worker] == 1:
            self._set(worker, self._limits_s[worker.role])

    def replied(self, worker: WorkerId) -> None:
        """A worker finished a ticket."""
        self._held[worker] -= 1
        if self._held[worker]:
            self._set(worker, self._limits_s[worker.role])
        else:
            self._deadline.pop(worker, None)

    def _set(self, worker: WorkerId, limit_s: float) -> None:
        if limit_s == math.inf:
            return
        self._since[worker] = time.monotonic()
        deadline = self._deadline[worker] = self._since[worker] + limit_s
        self.next_look = min(self.next_look, deadline)

    def late(self, now: float, begun: Callable[[WorkerId], tuple[int, int]]) -> Iterator[WorkerId]:
        """Yield the workers past their limit; each is yielded once.

        Args:
            now: The monotonic clock, in seconds.
            begun: Returns what a worker works on (-1: nothing) and since when, in nanoseconds.
        """
        for worker, deadline in list(self._deadline.items()):
            if now < deadline:
                continue
            if self._held[worker]:
                seq, since_ns = begun(worker)
                limit_s = self._limits_s[worker.role]
                # A ticket holds several items; the limit is for the one in work.
                start = since_ns / 1e9 if seq >= 0 else self._since[worker] + _UNBEGUN_S
                end = start + limit_s + self._slept(start)
                if now < end:
                    self._deadline[worker] = end
                    continue
            del self._deadline[worker]
            yield worker
        self.next_look = min(self._deadline.values(), default=math.inf)
