"""Every error that gepipe raises on purpose, and the exit code each one means.

    GepipeError                exit 1   base; catch this one
    ├─ ConfigError             exit 2   the request is wrong: YAML, paths, options
    ├─ PluginError             exit 2   unknown, duplicate or broken plugin (also LookupError)
    ├─ StageError              exit 3   an item failed and the policy says to stop
    │  └─ ItemError                     one item cannot be processed; becomes data
    ├─ WorkerError             exit 4   a stage keeps losing its workers
    │  └─ WorkerStartError              a worker could not start; never retried
    ├─ BackendError            exit 5   the device or the engine
    │  ├─ ModelLoadError                the model does not open
    │  ├─ TensorMismatchError           shapes, dtypes or names do not fit (also ValueError)
    │  └─ DeviceError                   a call of the device's library failed; .code
    │     ├─ DeviceMemoryError          its memory is exhausted (also MemoryError)
    │     ├─ DeviceTimeoutError         an execution took too long (also TimeoutError)
    │     └─ DeviceStateError           a context, stream or handle is missing or wrong
    │        └─ DeviceLostError         the device or its context is gone
    ├─ ExportError             exit 6   a pipeline cannot be exported
    ├─ Interrupted             exit 130 stopped by a signal; the files hold an exact prefix
    ├─ ClosedError                      used after close(): the caller's bug
    └─ InternalError           exit 70  our bug; please report it

A message reads `where: what; expected …; hint`, in lower case, without a full stop.
"""

from __future__ import annotations

from typing import Any


class GepipeError(Exception):
    """Base of every error that gepipe raises on purpose.

    Attributes:
        exit_code: What the process that reports it exits with.
        fatal: Whether the process that raised it cannot go on and must be replaced.
    """

    exit_code = 1
    fatal: bool = False


class ConfigError(GepipeError):
    """The request is wrong: the YAML, a path or an option. Lists every problem found."""

    exit_code = 2


class PluginError(GepipeError, LookupError):
    """A plugin is unknown, registered twice, or does not import."""

    exit_code = 2


class StageError(GepipeError):
    """A stage failed on an item and the pipeline's policy is to stop."""

    exit_code = 3


class ItemError(StageError):
    """One item cannot be processed. The item is set aside and the run goes on.

    Attributes:
        kind: Machine-readable reason, one lower-case word or two joined by `_`, such as `empty`,
            `truncated`, `not_an_image`, `too_large`, `missing`, `unreadable`, `shape`, `nan`.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[type[ItemError], tuple[str, str]]:
        return type(self), (self.kind, str(self))


class WorkerError(GepipeError):
    """A stage keeps losing its workers and cannot make progress."""

    exit_code = 4


class WorkerStartError(WorkerError):
    """A worker's set-up failed, or it did not become ready in time."""


class BackendError(GepipeError):
    """The device or the inference engine failed."""

    exit_code = 5


class ModelLoadError(BackendError):
    """The model file cannot be opened by the engine."""


class TensorMismatchError(BackendError, ValueError):
    """Names, shapes or dtypes of two neighbours do not fit."""


class DeviceError(BackendError):
    """A call of the device's library failed.

    Attributes:
        kind: Machine-readable reason, for the items that are set aside because of it.
        code: What the library returned; 0 where no call of it failed.
        call: The call, such as `acl.rt.malloc`; empty where none failed.
    """

    kind = "device"

    def __init__(
        self, message: str, *, code: int = 0, call: str = "", fatal: bool | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.call = call
        if fatal is not None:
            self.fatal = fatal

    def __reduce__(self) -> tuple[Any, ...]:
        return _device_error, (type(self), str(self), self.code, self.call, self.fatal)


def _device_error(kind: type[DeviceError], message: str, *fields: Any) -> DeviceError:
    code, call, fatal = fields
    return kind(message, code=code, call=call, fatal=fatal)


class DeviceMemoryError(DeviceError, MemoryError):
    """Memory of the device, or pinned memory of the host, is exhausted."""

    kind = "device_memory"


class DeviceTimeoutError(DeviceError, TimeoutError):
    """An execution took longer than allowed. What the device still does is unknown."""

    kind = "timeout"
    fatal = True


class DeviceStateError(DeviceError):
    """A context, stream, model or handle is missing, closed, or another device's."""

    kind = "device_state"


class DeviceLostError(DeviceStateError):
    """The device, or this process's context on it, is lost; only another process gets it back."""

    kind = "device_lost"
    fatal = True


class ExportError(GepipeError):
    """A pipeline cannot be exported, or not into that folder."""

    exit_code = 6


class Interrupted(GepipeError):  # noqa: N818 - a stop that was asked for, not a fault
    """The run was stopped by a signal. The output files hold an exact prefix."""

    exit_code = 130


class ClosedError(GepipeError):
    """Something was used after `close()`."""


class InternalError(GepipeError):
    """A bug of gepipe itself; please report it with the text of this error."""

    exit_code = 70


def reason_of(error: BaseException) -> str:
    """Return what the operating system says of an error, as it stands in a message of ours.

    It names no file, unlike the error's own text, and is in lower case.
    """
    return str(getattr(error, "strerror", None) or error).lower()
