"""Says what to do where the system gives this process nothing more."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from gepipe.errors import WorkerStartError, reason_of

_HINT = "or use fewer workers (threads, instances, stream_count)"
_NO_FOLDER = "No usable temporary directory"  # tempfile's words; its error has no number of its own


def why(error: BaseException) -> str:
    """Say why there is no further process, descriptor or thread, and what to do about it."""
    text = reason_of(error)
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EMFILE, errno.ENFILE):
        return f"{text}; raise `ulimit -n`, {_HINT}"
    if number in (errno.EAGAIN, errno.ENOMEM) or isinstance(error, RuntimeError):
        return (
            f"{text}; raise `ulimit -u` or the container's limit of processes (pids.max), {_HINT}"
        )
    if _NO_FOLDER in str(error):
        return "there is no folder for temporary files; set TMPDIR to one that can be written to"
    if isinstance(error, FileNotFoundError) and not _has_folder():
        return "the current folder does not exist any more; change into one that does"
    return text


def _has_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd() is the same, later
    except OSError:
        return False
    return True


def is_limit(error: BaseException) -> bool:
    """Whether an error says that the system gives no descriptor, process, thread or folder."""
    if isinstance(error, OSError):
        few = error.errno in (errno.EMFILE, errno.ENFILE, errno.EAGAIN)
        return few or _NO_FOLDER in str(error)
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)


@contextmanager
def told(what: str) -> Iterator[None]:
    """Have a limit of the system end in words.

    Raises:
        WorkerStartError: It was met.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        if not is_limit(error):
            raise
        raise WorkerStartError(f"{what}: {why(error)}") from error
