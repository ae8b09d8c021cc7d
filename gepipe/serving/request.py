"""A request to a fused model: what it wants, and when the last of its rows is answered."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from gepipe.errors import ItemError
from gepipe.io.failures import Failure
from gepipe.serving.kinds import CANCELLED, OVERLOADED
from gepipe.serving.payloads import RESULT
from gepipe.serving.replies import kind_of, reply_error, reply_failure, send

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.serving.service import Service

_TRUE = (True, 1, "true", "1", "realtime")
_FALSE = (False, 0, "false", "0", "bulk", None)


def rows_of(request: Any, name: str, *, is_text: bool) -> NDArray[Any]:
    """Return a request's input: (rows, …), or (rows,) of texts.

    Args:
        request: The server's request.
        name: The input.
        is_text: Whether each row is one text, rather than an array.

    Raises:
        ItemError: The input has another shape than it must have.
    """
    values: NDArray[Any]
    (values,) = (each.as_numpy() for each in request.inputs() if each.name() == name)
    if not is_text:
        return values
    if values.shape != (len(values), 1):
        shape = list(values.shape)
        raise ItemError("shape", f"input {name!r} has shape {shape}; expected [n, 1]")
    return values[:, 0]


def wants_realtime(parameters: str) -> bool:
    """Return the class that a request's parameters, as JSON, ask for: real-time, or bulk.

    Raises:
        ItemError: It is neither.
    """
    if parameters in ("", "{}"):
        return False
    wish = json.loads(parameters).get("realtime")
    if wish in _TRUE:
        return True
    if wish in _FALSE:
        return False
    raise ItemError("parameter", f"parameter realtime is {wish!r}; expected true or false")


class OpenRequest:
    """A request that is not answered yet."""

    def __init__(self, sender: Any, when_over: Callable[[OpenRequest], None]) -> None:
        """Take a request.

        Args:
            sender: The server's sender of its response.
            when_over: Called once all that is to be sent is known.
        """
        self._sender = sender
        self._sent = False
        self._sending = threading.Lock()
        self._when_over = when_over
        self._results: list[bytes | Failure | None] = []
        self._left = 0
        self._error: ItemError | None = None
        self._tokens: list[int] = []
        self._lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        """Whether all rows are answered."""
        return not self._left

    def refuse(self, error: ItemError) -> None:
        """Have it answered with an error."""
        self._error = error
        self._when_over(self)

    def submit(
        self, service: Service, rows: NDArray[Any], *, realtime: bool, deadline_s: float | None
    ) -> None:
        """Have its rows processed."""
        self._left = len(rows)
        self._results = [None] * len(rows)
        for number, row in enumerate(rows):
            answer = partial(self._answer, service, number)
            self._tokens.append(
                service.submit(row, realtime=realtime, deadline_s=deadline_s, answer=answer)
            )

    def cancel(self, service: Service) -> None:
        """Give up what is not answered."""
        for token, result in zip(self._tokens, self._results, strict=False):
            if result is None:
                service.cancel(token)

    def send(self, reply: Any) -> None:
        """Send the response."""
        with self._sending:
            self._sent = True
            send(self._sender, reply)

    def is_abandoned(self) -> bool:
        """Whether the client is gone. Takes 30 µs."""
        with self._sending:  # with its response, the server forgets the request
            return not self._sent and bool(self._sender.is_cancelled())

    def _answer(self, service: Service, number: int, result: bytes | Failure) -> None:
        with self._lock:
            self._results[number] = result
            self._left -= 1
            left = self._left
        if not left:
            self._when_over(self)
        elif isinstance(result, Failure) and result.kind == OVERLOADED:
            self.cancel(service)  # it fails as a whole: the others need not be done

    def reply(self, stage: str) -> tuple[Any, str]:
        """Return the response, and of a failure its kind.

        Args:
            stage: Named where the request itself is wrong.
        """
        if self._error is not None:
            return reply_error(stage, self._error), kind_of(self._error)
        failures = [
            (result.kind == CANCELLED, row, result)
            for row, result in enumerate(self._results)
            if isinstance(result, Failure)
        ]
        if failures:
            # Rows may have been cancelled because of another one.
            _, row, failure = min(failures, key=lambda each: each[:2])
            shown = row if len(self._results) > 1 else None
            return reply_failure(failure, shown), failure.kind
        import numpy as np
        import triton_python_backend_utils as pb_utils

        texts = np.empty((len(self._results), 1), object)
        texts[:, 0] = self._results
        return pb_utils.InferenceResponse([pb_utils.Tensor(RESULT, texts)]), ""
