"""A process that runs the operators of a stage, and the rows in shared memory that it works on."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from gepipe.errors import ItemError
from gepipe.pipeline.crews import worker_environment
from gepipe.runtime.memory import SharedBuffer, SlotLayout, Slots
from gepipe.serving.inbox import Inbox
from gepipe.serving.session import Session, SessionLost
from gepipe.serving.wanted import Wanted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.runtime.events import Fault, Role
    from gepipe.tensors import TensorSpec

log = logging.getLogger(__name__)

#: Rows that a worker works on at a time: most requests have one, and memory is kept small.
ROWS: Final = 4
#: How long a worker may take to set itself up.
_START_S: Final = 120.0
#: Workers that a request's rows may end.
_TRIES: Final = 2


class StageProcess:
    """A worker process and its rows, used by one thread. It is replaced when it dies.

    Attributes:
        wanted: Looks whether requests are still worth its time.
    """

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        role: Role,
        stage: str,
        body: bytes,
        specs: Sequence[TensorSpec],
        limit_s: float,
        *,
        rows: int = ROWS,
    ) -> None:
        """Start the process; `open` waits for it.

        Args:
            role: `pre` or `post`.
            stage: The stage's name, for messages.
            body: The pickled `Writer` or `Reader`, see `gepipe.runtime.worker`.
            specs: Row specs of what it writes or reads.
            limit_s: How long one item may take.
            rows: What it is given at a time, at most.
        """
        self.wanted = Wanted()
        self._role = role
        self._stage, self._body, self._limit_s = stage, body, limit_s
        layout = SlotLayout.of(tuple(specs), rows)
        self._link = SharedBuffer.create(layout.slot_nbytes), layout
        self._slots = Slots(*self._link)
        self._inbox = Inbox()
        self._session: Session | None = self._start()

    def open(self) -> None:
        """Wait until the process is set up.

        Raises:
            GepipeError: It cannot be set up.
        """
        if self._session is None:
            self._session = self._start()
        self._session.open()
        self._session.attach([self._link], self._limit_s)

    def hand_over(self, values: Sequence[bytes | NDArray[Any]]) -> Sequence[Any]:
        """Put the items of pre where it reads them; return their payloads, for `work`.

        Raises:
            BackendError: There is not enough memory.
        """
        return self._inbox.put(values)

    def work(self, items: Sequence[Any], tries: int = _TRIES) -> Sequence[bytes | Fault]:
        """Have items written into the rows, or read from them.

        Args:
            items: As many as there are rows, at most: of pre their payloads, of post what was noted
                about them.
            tries: Workers that they may end.

        Returns:
            Of each item what its operators return, or what went wrong.

        Raises:
            ItemError: The process ended each time.
            GepipeError: The process cannot be replaced.
        """
        for left in reversed(range(tries)):
            if self._session is None:
                self.open()
            assert self._session is not None
            began = time.monotonic()
            try:
                results = self._session.work(items, self._inbox.buffer)
            except SessionLost as lost:
                session, self._session = self._session, None
                session.close()
                # As text: a record that is kept would hold frames with views of the rows.
                log.warning("%s; it is replaced", str(lost))
                if not left:
                    often = ", twice, while on this item" * (tries > 1)
                    raise ItemError(lost.kind, f"{lost}{often}") from None
            else:
                self.wanted.worked(len(items), time.monotonic() - began)
                return results
        raise AssertionError  # the last try returns or raises

    def fill(self, arrays: Mapping[str, NDArray[Any]], first: int = 0) -> None:
        """Write name to (count, …) array into the rows from `first` on."""
        for name, array in arrays.items():
            self._slots[0][name][first : first + len(array)] = array

    def rows(self, count: int) -> Mapping[str, NDArray[Any]]:
        """Return name to (count, …) array of the rows; views, valid until the next call."""
        return {name: view[:count] for name, view in self._slots[0].items()}

    def interrupt(self) -> None:
        """End the process, whatever it does."""
        if self._session is not None:
            self._session.kill()

    def close(self) -> None:
        """End the process and free the rows."""
        if self._session is not None:
            self._session.close()
        self._inbox.close()
        del self._slots
        try:
            self._link[0].close()
        except BufferError:  # somebody holds a view; the end of this process frees it
            log.debug("%s: rows are still in use", self._stage)

    def _start(self) -> Session:
        return Session(self._stage, self._body, worker_environment(), _START_S, role=self._role)
