"""When a device should be given its next execution: late, so that the best one can be chosen."""

from __future__ import annotations

import math
from typing import Final

from gepipe.runtime.batches import Execution
from gepipe.runtime.events import WorkerId
from gepipe.runtime.roster import Roster

#: Executions that a worker holds at most: the one that runs, and the one after it.
_HELD: Final = 2
#: How long before the running execution ends the next one is submitted: at least this, so that the
#: worker never waits for it (a wake-up takes some 50 µs, on a busy machine a few times that) …
_LEAD_S: Final = 0.001
#: … and where the engine copies the next inputs meanwhile, this share of an execution; …
_COPY_SHARE: Final = 0.125
#: … but never more than this share. What becomes ready just too late waits for the rest of one
#: execution and for a whole one: 1.5 at the most.
_MOST_SHARE: Final = 0.5
#: Weight of a new measurement in the running mean.
_NEW: Final = 0.2


class Times:
    """How long an execution of so many rows takes, learnt from those that were done."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    def add(self, rows: int, seconds: float) -> None:
        """Learn from an execution."""
        old = self._seconds.get(rows)
        self._seconds[rows] = seconds if old is None else old + _NEW * (seconds - old)

    def expect(self, rows: int) -> float | None:
        """Return the time to expect, rather too short than too long; None while nothing is known.

        Too short, the next execution is submitted too early, once; too long, the device would
        stand still.
        """
        known = self._seconds
        if rows in known:
            return known[rows]
        fewer = max((count for count in known if count < rows), default=None)
        if fewer is not None:
            return known[fewer]
        more = min(known, default=None)
        return None if more is None else known[more] * rows / more


class Pace:
    """Which infer workers can take an execution, and when others will.

    Attributes:
        times: What was learnt.
    """

    def __init__(self, roster: Roster, workers: int, in_flight: int) -> None:
        """Begin with nothing learnt.

        Args:
            roster: Who is up and holds what.
            workers: Infer workers.
            in_flight: Batches that the engine works on at once.
        """
        self.times = Times()
        self._roster = roster
        self._workers = [WorkerId("infer", index) for index in range(workers)]
        self._share = _COPY_SHARE if in_flight > 1 else 0.0
        self._begun = dict.fromkeys(self._workers, 0.0)

    def begin(self, worker: WorkerId, now: float) -> None:
        """Say that a worker begins with the oldest execution it holds, if it holds one."""
        self._begun[worker] = now

    def pick(self, now: float, avoid: WorkerId | None = None) -> tuple[WorkerId, bool] | None:
        """Return a worker that can take an execution, and whether it stands still.

        Args:
            now: The time.
            avoid: One that must not be it, unless no other is up.
        """
        found = None
        up = [worker for worker in self._workers if self._roster[worker].up]
        for worker in up:
            if worker == avoid and len(up) > 1:
                continue
            if not self._roster[worker].held:
                return worker, True
            if found is None and self._free_at(worker) <= now:
                found = worker, False
        return found

    def idle(self) -> int:
        """Return how many workers stand still."""
        return sum(self._roster[w].up and not self._roster[w].held for w in self._workers)

    def next_free(self) -> float:
        """Return when the first of the workers can take one more; infinity where none will."""
        up = [worker for worker in self._workers if self._roster[worker].up]
        return min(map(self._free_at, up), default=math.inf)

    def _free_at(self, worker: WorkerId) -> float:
        held = self._roster[worker].held
        if len(held) != _HELD - 1:
            return math.inf if held else -math.inf
        running = held[0]
        assert isinstance(running, Execution)
        expected = self.times.expect(running.last - running.first)
        if expected is None:
            return -math.inf
        lead = min(max(_LEAD_S, self._share * expected), _MOST_SHARE * expected)
        return self._begun[worker] + expected - lead
