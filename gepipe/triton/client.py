"""Many inputs through a server: several calls at a time, outcomes in input order.

    entries ─▶ window ─▶ thread: read, call, again while the server is busy ─▶ order ─▶ caller

A thread waits for the network, not for the processor, so threads are enough. What has been begun is
bounded, so neither a slow input nor a slow caller makes memory grow. A call whose answer was lost
with a process of the server's is made again by another thread; its own waits until its limit.
"""

from __future__ import annotations

import logging
import math
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gepipe.errors import BackendError, GepipeError, Interrupted, ItemError
from gepipe.io.failures import Failure
from gepipe.io.sink import Record
from gepipe.triton.connection import Busy, Connection, Refused, ServedModel
from gepipe.triton.lookout import Lookout

if TYPE_CHECKING:
    from gepipe.io.source import Entry, Reader
    from gepipe.triton.address import Address

log = logging.getLogger(__name__)

Outcome: TypeAlias = "Record | Failure"

#: Inputs begun for each call at a time: those that are done wait for the oldest.
_WINDOW: Final = 4
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
#: How long a server may take to come up; after that, the address is more likely to be wrong.
_OPENING_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How a server is called.

    Attributes:
        concurrency: Calls at a time.
        timeout_s: Limit of one call.
        patience_s: How long a call is tried again while the server is busy or away.
        realtime: The class of each call, see `Connection.call`.
    """

    concurrency: int = 32
    timeout_s: float = 60.0
    patience_s: float = 60.0
    realtime: bool | None = None


@dataclass(slots=True, eq=False)
class _Call:
    """An input in a thread.

    Attributes:
        index: Its index.
        entry: The input.
        asked: Since when the server has had it; infinite while it has not.
        is_lost: Whether another thread has taken it over.
    """

    index: int
    entry: Entry
    asked: float = field(default=math.inf)
    is_lost: bool = False


class Client:
    """Sends the inputs of one job to a served model.

    Attributes:
        retries: Calls that were made again.
        busy_s: Time that answers took, summed over the threads.
    """

    def __init__(  # noqa: PLR0913 - each is a fact of the job
        self,
        address: Address,
        model: str,
        options: ClientOptions,
        *,
        reader: Reader,
        stage: str,
        encode: Callable[[bytes, Entry], bytes],
    ) -> None:
        """Describe the job; nothing is opened yet.

        Args:
            address: The server.
            model: The model to call.
            options: Limits.
            reader: Reads the inputs.
            stage: The stage that an unreadable input is blamed on.
            encode: Makes a record's payload of the JSON text that the server sent for an input; in
                the thread of its call.
        """
        self.retries = 0
        self.busy_s = 0.0
        self._address = address
        self._model = model
        self._reader = reader
        self._stage = stage
        self._options = options
        self._encode = encode
        self._served: ServedModel | None = None
        self._todo: queue.SimpleQueue[tuple[int, Entry] | None] = queue.SimpleQueue()
        self._calls: dict[threading.Thread, _Call | None] = {}
        self._done: queue.SimpleQueue[Outcome | GepipeError] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._lock = threading.Lock()

    def request_stop(self) -> None:
        """Ask the job to stop soon. Safe in a signal handler and in any thread."""
        self._stop.set()
        self._done.put(Interrupted("stopped on request; what was written is an exact prefix"))

    def open(self) -> ServedModel:
        """Ask the server what the model takes, and wait for one that is just starting.

        Raises:
            Busy: The server cannot be reached within the patience.
            ConfigError: It has no such model, or one that cannot be called like this.
            Interrupted: `request_stop` was called.
        """
        connection = Connection(self._address, _OPENING_S)  # a call's own limit may be short
        connection.open()
        try:
            patience_s = min(_OPENING_S, self._options.patience_s)
            served: ServedModel = self._patiently(
                lambda: connection.describe(self._model), patience_s
            )
        finally:
            connection.close()
        self._served = served
        return served

    def run(self, entries: Iterator[Entry], first: int = 0) -> Iterator[list[Outcome]]:
        """Yield the outcomes of all entries in input order, as they become known.

        Args:
            entries: The inputs.
            first: Index of the first.

        Raises:
            BackendError: The server cannot be reached, or takes no calls, for too long.
            Interrupted: `request_stop` was called.
        """
        connection = Connection(self._address, _OPENING_S)
        connection.open()
        lookout = Lookout(connection, self._model, self._ask_again)
        for _ in range(self._options.concurrency):
            self._begin(None)
        try:
            yield from self._in_order(entries, first)
        finally:
            self._stop.set()
            lookout.close()
            with self._lock:
                threads = list(self._calls)
            for _ in threads:
                self._todo.put(None)
            deadline = time.monotonic() + 1.0  # one that waits for an answer ends by its limit
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _begin(self, lost: _Call | None) -> None:
        """Start a thread, which begins with a call that another one has lost."""
        task = lost and (lost.index, lost.entry)
        thread = threading.Thread(target=self._work, args=(task,), name="call", daemon=True)
        with self._lock:
            self._calls[thread] = None
        thread.start()

    def _ask_again(self, before: float) -> None:
        """Have calls made again that the server has had since before a time: it lost them."""
        with self._lock:
            lost = {t: call for t, call in self._calls.items() if call and call.asked < before}
            for thread, call in lost.items():
                call.is_lost = True
                del self._calls[thread]
            self.retries += len(lost)
        if lost:
            log.warning("%s was loaded anew; calls made again: %s", self._model, f"{len(lost):,}")
        for call in lost.values():
            self._begin(call)

    def _in_order(self, entries: Iterator[Entry], first: int) -> Iterator[list[Outcome]]:
        begun = following = first
        held: dict[int, Outcome] = {}
        window = _WINDOW * self._options.concurrency
        ended = False
        while True:
            while not ended and begun - following < window:
                entry = next(entries, None)
                if entry is None:
                    ended = True
                    break
                self._todo.put((begun, entry))
                begun += 1
            if ended and following == begun:
                return
            outcomes = [self._done.get()]
            with suppress(queue.Empty):
                while True:
                    outcomes.append(self._done.get_nowait())
            for outcome in outcomes:
                if isinstance(outcome, GepipeError):
                    raise outcome
                if outcome.index >= following:  # else it was answered twice
                    held[outcome.index] = outcome
            ready = []
            while following in held:
                ready.append(held.pop(following))
                following += 1
            if ready:
                yield ready

    def _work(self, task: tuple[int, Entry] | None) -> None:
        connection = Connection(self._address, self._options.timeout_s)
        me = threading.current_thread()
        call: _Call | None = None
        try:
            connection.open()
            while (task := task or self._todo.get()) is not None and not self._stop.is_set():
                call = _Call(*task)
                task = None
                with self._lock:
                    self._calls[me] = call
                outcome = self._outcome(connection, call)
                if not call.is_lost or isinstance(outcome, Record):
                    self._done.put(outcome)
                if call.is_lost:
                    return
        except Exception as error:  # noqa: BLE001 - a thread must not end unheard
            if not isinstance(error, GepipeError):
                error = BackendError(f"{self._address}: {type(error).__name__}: {error}")
            if call is None or not call.is_lost:
                self._done.put(error)
        finally:
            connection.close()

    def _outcome(self, connection: Connection, call: _Call) -> Outcome:
        served, index, entry = self._served, call.index, call.entry
        assert served is not None
        try:
            payload = self._reader.read(entry.payload)
        except ItemError as error:
            return Failure(index, entry.source, self._stage, error.kind, str(error))

        def ask() -> bytes:
            call.asked = time.monotonic()
            try:
                return connection.call(served, payload, realtime=self._options.realtime)
            finally:
                call.asked = math.inf

        began = time.perf_counter()
        try:
            text = self._patiently(ask, self._options.patience_s)
            return Record(index, entry.source, self._encode(text, entry))
        except Refused as error:
            return Failure(index, entry.source, error.stage, error.kind, str(error))
        except ItemError as error:  # the sink cannot hold this result
            return Failure(index, entry.source, "sink", error.kind, str(error))
        finally:
            with self._lock:
                self.busy_s += time.perf_counter() - began

    def _patiently(self, call: Callable[[], Any], patience_s: float) -> Any:
        """Call again while the server is busy, at ever longer intervals."""
        end = time.monotonic() + patience_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return call()
            except Busy as error:
                # Not all at the same moment, or they would find the server busy again.
                wait_s = pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
                if time.monotonic() + wait_s > end:
                    raise BackendError(
                        f"{self._address} took no call within {patience_s:g} s: {error}"
                    ) from error
                with self._lock:
                    self.retries += 1
                    if self.retries == 1 and self._served is None:
                        log.warning("waiting for the server: %s", str(error))
                if self._stop.wait(wait_s):
                    raise Interrupted(
                        "stopped on request; what was written is an exact prefix"
                    ) from error
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
