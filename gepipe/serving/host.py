"""A model that stays open, whatever happens to the process that has it.

The engine never runs in the server's own process: pyACL holds the GIL while it works, and after a
timeout or the loss of a device only another process gets it back. Rows are written into a slot in
shared memory, executed there, and read from another slot. Rows that lie in shared memory already
are executed where they are.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gepipe.errors import BackendError, ClosedError, GepipeError
from gepipe.runtime.lent import LentRows
from gepipe.runtime.links import Link
from gepipe.runtime.memory import SharedBuffer, SlotLayout, Slots
from gepipe.serving.session import Session, SessionLost

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.runtime.body import ModelInfo

log = logging.getLogger(__name__)

#: How long the model may take to open at first.
_START_S: Final = 300.0
#: Pauses before further attempts to open a lost model again; the last one goes on.
_PAUSES_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
#: A process that replaces a lost one is given this many times what the first one took to open the
#: model, and this long at least.
_SLOWER: Final = 3
_REOPEN_S: Final = 10.0
#: How long a batch waits for the first of these attempts, which usually succeeds.
_PATIENCE_S: Final = (2.0, 30.0)
#: Processes lost before they had begun a batch, for one batch.
_UNBEGUN_LOSSES: Final = 3


class ExecutionError(BackendError):
    """A batch could not be executed.

    Attributes:
        kind: Machine-readable reason: `timeout`, `crash`, `unavailable`, a device's kind, or the
            name of the exception's class.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class ModelHost:
    """Keeps one process with an open model. Used by one thread.

    Attributes:
        info: What the model says of itself.
        losses: Processes lost so far.
    """

    info: ModelInfo

    def __init__(
        self,
        name: str,
        body: bytes,
        environ: Mapping[str, str],
        changed: Callable[[bool], None] = lambda _: None,
        model: Path | None = None,
    ) -> None:
        """Open the model.

        Args:
            name: What to call it in messages.
            body: The pickled `gepipe.runtime.body.Runner`.
            environ: Environment variables that workers must have as they are now.
            changed: Told when the process is lost (False), and when there is another (True); in
                any thread.
            model: The model file: another one is not taken in place of it later.

        Raises:
            GepipeError: It cannot be opened.
        """
        self._tell = changed
        self._model = model
        self._stamp = self._look()
        self._name, self._body, self._environ = name, body, environ
        self._links: tuple[Link, Link] | None = None
        self._slots: tuple[Slots, Slots] | None = None
        self._limit_s = math.inf
        self._changed = threading.Condition()
        self._closing = False
        self._opening: Session | None = None
        self._reopener: threading.Thread | None = None
        self._reason = ""
        self._given_up = False  # on the first attempt to open it again; further ones take longer
        self.losses = 0
        begin = time.monotonic()
        try:
            self._session: Session | None = self._open(_START_S)
        except SessionLost as lost:
            raise BackendError(f"{lost} while the model was opened") from None
        took_s = time.monotonic() - begin
        self._reopen_s = max(_REOPEN_S, _SLOWER * took_s)
        self._patience_s = min(max(_PATIENCE_S[0], _SLOWER * took_s), _PATIENCE_S[1])
        self.info = self._session.info

    def lay_out(self, inputs: SlotLayout, outputs: SlotLayout, limit_s: float = math.inf) -> None:
        """Reserve the slots. To be called once, before the first `execute`.

        Args:
            inputs: Of the input slot.
            outputs: Of the output slot.
            limit_s: How long an execution may take before its process is killed.

        Raises:
            BackendError: There is not enough memory.
        """
        first = SharedBuffer.create(inputs.slot_nbytes)
        try:
            second = SharedBuffer.create(outputs.slot_nbytes)
        except BaseException:
            first.close()
            raise
        self._limit_s = limit_s
        self._links = ((first, inputs), (second, outputs))
        self._slots = (Slots(first, inputs), Slots(second, outputs))
        self._current().attach(self._links, limit_s)

    @property
    def inputs(self) -> Mapping[str, NDArray[Any]]:
        """Name to (batch, …) array: where rows are to be written."""
        assert self._slots is not None
        return self._slots[0][0]

    @property
    def outputs(self) -> Mapping[str, NDArray[Any]]:
        """Name to (batch, …) array: where rows are found after `execute`."""
        assert self._slots is not None
        return self._slots[1][0]

    def execute(self, first: int, last: int, lent: LentRows | None = None) -> int:
        """Execute the rows [first, last) of the slot.

        A process that dies, hangs or loses its device is replaced while the next call waits a
        moment. Where that fails, calls are refused at once and a thread goes on trying.

        Args:
            first: The first row.
            last: The one behind the last.
            lent: Where the rows of the inputs lie instead; those of the outputs are in the slot.

        Returns:
            How long the device was busy, in nanoseconds.

        Raises:
            ExecutionError: The execution failed, or there is no process at the moment.
            ClosedError: The host is closed.
        """
        for _ in range(_UNBEGUN_LOSSES):
            session = self._current()
            try:
                busy_ns, fault = session.execute(first, last, lent)
            except SessionLost as lost:
                self._replace(session, str(lost))
                if lost.begun:
                    raise ExecutionError(lost.kind, str(lost)) from None
                continue  # it had lost its device with the batch before, and left
            if fault is not None:
                self._reason = fault.text
                raise ExecutionError(fault.kind, fault.text)
            self._reason = ""
            return busy_ns
        raise ExecutionError("crash", f"{_UNBEGUN_LOSSES} processes in a row ended at once")

    def close(self) -> None:
        """End the process, within its grace. Closing twice is harmless."""
        with self._changed:
            self._closing = True
            opening, session, self._session = self._opening, self._session, None
            self._changed.notify_all()
        if opening is not None:
            opening.kill()
        if self._reopener is not None:
            self._reopener.join()
        if session is not None:
            session.close()
        self._slots = None
        for buffer, _ in self._links or ():
            try:
                buffer.close()
            except BufferError:  # somebody holds a view; the end of this process frees it
                log.debug("%s: a slot is still in use", self._name)
        self._links = None

    def _look(self) -> tuple[int, ...]:
        """Return what tells the model file from another one of the same name."""
        if self._model is None:
            return ()
        try:
            found = self._model.stat()
        except OSError:
            return (0,)
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _current(self) -> Session:
        with self._changed:
            self._changed.wait_for(
                lambda: self._session is not None or self._given_up or self._closing,
                self._patience_s,
            )
            if self._closing:
                raise ClosedError(f"{self._name}: the model is closed")
            if self._session is None:
                raise ExecutionError("unavailable", f"{self._reason}; it is being opened again")
            return self._session

    def _replace(self, lost: Session, reason: str) -> None:
        """Have a thread put another process in the place of a lost one."""
        lost.close()
        with self._changed:
            # What the engine had said before it left is more than that its process left.
            self._reason = self._reason or reason
            log.warning("%s: %s; its process is replaced", self._name, self._reason)
            self._session, self._given_up = None, False
            self.losses += 1
            self._tell(False)
            self._reopener = threading.Thread(target=self._reopen, name="reopen", daemon=True)
            self._reopener.start()

    def _reopen(self) -> None:
        for pause_s in _pauses():
            with self._changed:
                if self._changed.wait_for(lambda: self._closing, pause_s):
                    return
            try:
                session = self._open(self._reopen_s)
            except GepipeError as error:
                with self._changed:
                    if self._closing:
                        return
                    self._reason, self._given_up = str(error), True
                    self._changed.notify_all()
                log.warning("%s: cannot be opened again: %s", self._name, str(error))
                continue
            with self._changed:
                if not self._closing:
                    self._tell(True)
                    self._session, self._reason = session, ""
                    self._changed.notify_all()
                    return
            session.close()
            return

    def _open(self, limit_s: float) -> Session:
        session = Session(self._name, self._body, self._environ, limit_s)
        try:
            with self._changed:
                if self._closing:
                    raise ClosedError(f"{self._name}: the model is closed")
                self._opening = session
            session.open()
            if self._links is not None:
                if session.info != self.info or self._look() != self._stamp:
                    raise BackendError(
                        f"{self._name}: the model file has changed; load the model again"
                    )
                session.attach(self._links, self._limit_s)
        except BaseException:
            session.close()
            raise
        finally:
            with self._changed:
                self._opening = None
        return session


def _pauses() -> Iterator[float]:
    """Yield how long to wait before each attempt to open a model again."""
    yield 0.0
    yield from _PAUSES_S
    yield from repeat(_PAUSES_S[-1])
