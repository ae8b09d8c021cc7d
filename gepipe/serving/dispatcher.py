"""Has threads answer requests that wait in the backend itself, and not in the server's batcher.

    execute ─▶ take ─▶ RequestQueue ─▶ one batch ─▶ outbox ─▶ senders ─▶ server

The server's batcher may miss its wake-up and sleep for half a second while its queue is not empty,
and forms no batch while the one before is in the model. Here the next batch is whatever waits when
the device becomes free, real-time requests first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Final

from gepipe.serving.merging import Query
from gepipe.serving.replies import send
from gepipe.serving.request_queue import RequestQueue

#: Threads that send answers: sending one takes 200 microseconds, most of it waiting for the server.
_SENDERS: Final = 2
#: How long what waits may take when the model is closed; the server waits for its requests before.
_DRAIN_S: Final = 2.0
#: How often it is told how many requests are not answered.
_TELL_S: Final = 0.5


class Dispatcher:
    """Takes requests, has threads answer them batch by batch, and sends the answers."""

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        waiting: RequestQueue,
        answers: Sequence[Callable[[Sequence[Query]], Sequence[Any]]],
        *,
        capacity: Callable[[], int],
        merged: bool,
        tell: Callable[[int], None],
        senders: int = _SENDERS,
    ) -> None:
        """Start.

        Args:
            waiting: Where requests wait.
            answers: For each thread what executes a batch and returns a response for each of its
                requests; never raises.
            capacity: Returns the rows of the next batch.
            merged: Whether several requests may share a batch.
            tell: Told now and then how many requests were taken and are not answered.
            senders: Threads that send answers; with 0 each thread sends its own, so that what a
                response is made of need not outlive the next batch.
        """
        self._waiting = waiting
        self._capacity, self._merged = capacity, merged
        self._outbox: SimpleQueue[tuple[Any, Any] | None] = SimpleQueue()
        self._open = 0
        self._counting = threading.Lock()
        self._closed = threading.Event()
        self._tell = tell
        self._teller = threading.Thread(target=self._tell_open, name="gepipe tick", daemon=True)
        self._workers = [
            threading.Thread(
                target=self._work, args=(answer,), name=f"gepipe batches {number}", daemon=True
            )
            for number, answer in enumerate(answers)
        ]
        self._senders = [
            threading.Thread(target=self._send_all, name=f"gepipe sender {number}", daemon=True)
            for number in range(senders)
        ]
        for thread in (*self._workers, *self._senders, self._teller):
            thread.start()

    def take(self, query: Query, *, realtime: bool) -> None:
        """Have a request answered some time; it must have its sender.

        Raises:
            ItemError: `overloaded`: too many wait already.
        """
        self._waiting.put(query, realtime=realtime)
        self._count(1)

    def reply(self, query: Query, response: Any) -> None:
        """Send a response."""
        if self._senders:
            self._outbox.put((query.sender, response))
        else:
            send(query.sender, response)

    def close(self, interrupt: Callable[[], None]) -> None:
        """Answer what waits, and stop.

        Args:
            interrupt: Ends executions that take too long for that.
        """
        self._waiting.end()
        end = time.monotonic() + _DRAIN_S
        for thread in self._workers:
            thread.join(max(0.0, end - time.monotonic()))
        interrupt()
        for thread in self._workers:
            thread.join()
        for _ in self._senders:
            self._outbox.put(None)
        self._closed.set()
        for thread in (*self._senders, self._teller):
            thread.join()

    def _work(self, answer: Callable[[Sequence[Query]], Sequence[Any]]) -> None:
        while queries := self._waiting.take(self._capacity(), merged=self._merged):
            for query, response in zip(queries, answer(queries), strict=True):
                self.reply(query, response)
            self._count(-len(queries))

    def _count(self, more: int) -> None:
        with self._counting:
            self._open += more

    def _tell_open(self) -> None:
        while not self._closed.wait(_TELL_S):
            self._tell(self._open)
        self._tell(0)

    def _send_all(self) -> None:
        while (entry := self._outbox.get()) is not None:
            send(*entry)
