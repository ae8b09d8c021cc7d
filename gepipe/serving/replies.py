"""Errors as a client of the server sees them: a code, and `stage: kind: text`."""

from __future__ import annotations

import logging
import os
from typing import Any, Final

from gepipe.errors import GepipeError, ItemError, TensorMismatchError, WorkerError
from gepipe.io.failures import Failure
from gepipe.runtime.tickets import fault_of
from gepipe.serving.host import ExecutionError
from gepipe.serving.kinds import CANCELLED, EXPIRED, OVERLOADED, UNAVAILABLE

log = logging.getLogger(__name__)

#: Where the server's memory for tensors is, and how much free of it is little.
_SHM: Final = "/dev/shm"  # noqa: S108 - Triton's
_SHORT: Final = 64 << 20

#: Kinds of failures that may be gone when the request comes again.
_PASSING: Final = frozenset({"crash", EXPIRED, OVERLOADED, "timeout", UNAVAILABLE})


class RowFailed(GepipeError):  # noqa: N818 - it wraps the error
    """A row of a request cannot be processed, and the request with it.

    Attributes:
        shown: Which row; None where the request has only one.
        error: Why.
    """

    def __init__(self, row: int, count: int, error: BaseException) -> None:
        super().__init__(str(error))
        self.shown = row if count > 1 else None
        self.error = error


def kind_of(error: BaseException) -> str:
    """Return the machine-readable reason of a failure, as in the failures of a run."""
    return str(getattr(error, "kind", None) or fault_of(error)[0])


def code_of(error: BaseException) -> str:
    """Return the server's name of the code for a failure."""
    kind = kind_of(error)
    if isinstance(error, ItemError | ExecutionError):
        return code_of_kind(kind)
    if kind in _PASSING or isinstance(error, WorkerError):
        return "UNAVAILABLE"
    return "INVALID_ARG" if isinstance(error, TensorMismatchError) else "INTERNAL"


def text_of(stage: str, error: BaseException, row: int | None = None) -> str:
    """Return what the client reads.

    Args:
        stage: The stage's name.
        error: What went wrong.
        row: In which row of the request; None where it has only one.
    """
    where = "" if row is None else f"row {row}: "
    return f"{stage}: {kind_of(error)}: {where}{fault_of(error)[1]}"


def reply_error(stage: str, error: BaseException, row: int | None = None) -> Any:
    """Return the response that says why a request failed; see `text_of`."""
    return _refusal(text_of(stage, error, row), code_of(error))


def reply_failure(failure: Failure, row: int | None = None) -> Any:
    """Return the response to a request with an item that a worker has set aside."""
    where = "" if row is None else f"row {row}: "
    text = f"{failure.stage}: {failure.kind}: {where}{failure.error}"
    return _refusal(text, code_of_kind(failure.kind))


def send(sender: Any, response: Any) -> None:
    """Send a response; if there is no shared memory for it, the request ends without one.

    A sender can be used once: when it fails at the last response, the request stays open for ever.
    Where memory is short, that it was the last is therefore said apart.
    """
    import triton_python_backend_utils as pb_utils

    final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
    try:
        if _has_room():
            sender.send(response, final)
            return
        try:
            sender.send(response)
        finally:
            sender.send(flags=final)
    except Exception:  # the others must still be sent
        log.exception("an answer could not be sent")


def _has_room() -> bool:
    facts = os.statvfs(_SHM)
    return facts.f_bavail * facts.f_frsize >= _SHORT


def _refusal(text: str, code: str) -> Any:
    import triton_python_backend_utils as pb_utils

    # Of a lone surrogate, as user code may leave in its message, the server makes no text.
    text = text.encode("utf-8", "backslashreplace").decode()
    return pb_utils.InferenceResponse(
        error=pb_utils.TritonError(text, getattr(pb_utils.TritonError, code))
    )


def code_of_kind(kind: str) -> str:
    """Return the server's name of the code for a failure that is known by its kind alone."""
    if kind == CANCELLED:
        return "CANCELLED"
    if kind in _PASSING:
        return "UNAVAILABLE"
    # Kinds of items are words; any other exception is known by the name of its class.
    if kind.startswith("device") or not kind.islower():
        return "INTERNAL"
    return "INVALID_ARG"
