"""Who works where, and who can take the next ticket."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from gepipe.runtime.batches import Ticket
from gepipe.runtime.events import Role, WorkerId

#: Tickets a worker may hold beyond those it works on: one to go on with, so that it never waits for
#: the supervisor's next word (a wake-up round trip between two processes costs some 45 µs).
_AHEAD = 1


@dataclass(slots=True)
class Place:
    """A worker's place: whether a process is ready in it, and what that process holds.

    A lost place has no process and gets none; one that is not started gets its first when needed.
    """

    started: bool = True
    up: bool = False
    lost: bool = False
    held: deque[Ticket] = field(default_factory=deque)


class Roster:
    """The places of all roles."""

    def __init__(
        self,
        workers: Mapping[Role, int],
        unstarted: Collection[WorkerId] = (),
        in_flight: int = 1,
        lost: Collection[WorkerId] = (),
    ) -> None:
        """Make empty places.

        Args:
            workers: How many of each role.
            unstarted: Those that are only started when needed.
            in_flight: Tickets that an infer worker works on at once.
            lost: Those that get no process any more.
        """
        self._limits = {role: _AHEAD + (in_flight if role == "infer" else 1) for role in workers}
        self._places = {
            role: [
                Place(started=worker not in unstarted, lost=worker in lost)
                for worker in (WorkerId(role, index) for index in range(count))
            ]
            for role, count in workers.items()
        }

    def __getitem__(self, worker: WorkerId) -> Place:
        """Return a worker's place."""
        return self._places[worker.role][worker.index]

    def up(self, role: Role) -> int:
        """Return how many workers of a role are ready."""
        return sum(place.up for place in self._places[role])

    def all_lost(self, role: Role) -> bool:
        """Return whether no place of a role is left."""
        return all(place.lost for place in self._places[role])

    def next_start(self, role: Role) -> WorkerId | None:
        """Return a place to start a worker in, once all others of the role are ready and full."""
        unstarted, limit = None, self._limits[role]
        for index, place in enumerate(self._places[role]):
            if not place.started:
                unstarted = unstarted or WorkerId(role, index)
            elif not place.lost and (not place.up or len(place.held) < limit):
                return None
        return unstarted

    def vacancy(self, role: Role, avoid: WorkerId | None = None) -> WorkerId | None:
        """Return the worker with the least outstanding work that can take a ticket.

        Args:
            role: What kind of worker.
            avoid: One that must not be it, unless there is no other place.
        """
        best, least = None, self._limits[role]
        places = self._places[role]
        others = sum(place.started and not place.lost for place in places) > 1
        for index, place in enumerate(places):
            if place.up and len(place.held) < least:
                if others and avoid is not None and index == avoid.index:
                    continue
                best, least = index, len(place.held)
        return None if best is None else WorkerId(role, best)
