"""What has become of the places of workers: which are in use, and which stay empty for good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from gepipe.errors import DeviceError, GepipeError, WorkerStartError
from gepipe.runtime.events import Role, WorkerId
from gepipe.runtime.options import Crew


class Places:
    """The places of all roles, in the order in which they are filled.

    Attributes:
        all: Infer first: opening a model takes longest.
        lost: Places that stay empty: what was put there after a death could not be set up.
    """

    def __init__(self, crews: Mapping[Role, Crew]) -> None:
        roles: tuple[Role, ...] = ("infer", "pre", "post")
        self.all = [
            WorkerId(role, index)
            for role in roles
            if role in crews
            for index in range(len(crews[role].bodies))
        ]
        self.lost: set[WorkerId] = set()
        self._eager = {role: crew.eager for role, crew in crews.items()}
        self._used: set[WorkerId] = set()
        self._replaced: set[WorkerId] = set()  # in which a process has died at work
        self._start_deaths: Counter[tuple[WorkerId, bool]] = Counter()

    def begin(self, worker: WorkerId) -> int:
        """Note that a process is started in a place; return which of all places it is."""
        self._used.add(worker)
        return self.all.index(worker)

    def unused(self) -> set[WorkerId]:
        """Return the places that have had no process yet."""
        return set(self.all) - self._used

    def is_late(self, worker: WorkerId) -> bool:
        """Whether a place gets a process only when there is enough to do."""
        return worker.index >= self._eager[worker.role]

    def died_in_set_up(self, worker: WorkerId, *, lost: bool) -> int:
        """Note it; return how often that has happened since a process there was at work.

        Args:
            worker: The place.
            lost: Whether all workers died, and nothing says that this one is to blame.
        """
        self._start_deaths[worker, lost] += 1
        return self._start_deaths[worker, lost]

    def died_at_work(self, worker: WorkerId) -> None:
        """Note it."""
        self._replaced.add(worker)
        self._start_deaths[worker, True] = self._start_deaths[worker, False] = 0

    def give_up(self, worker: WorkerId, error: GepipeError) -> int:
        """Leave a place empty, and return how many of infer are left; raise where it is needed.

        At the beginning, only the device may be to blame: what is wrong with a model is so on each.
        """
        left = sum(
            each.role == "infer" and each not in self.lost and each != worker for each in self.all
        )
        began = worker in self._replaced or self.is_late(worker)
        if worker.role != "infer" or not (
            began or (left and isinstance(error, DeviceError | WorkerStartError))
        ):
            raise error
        self.lost.add(worker)
        return left
