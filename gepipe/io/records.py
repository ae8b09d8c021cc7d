"""A file of whole records: appended to, cut back to a record's end, locked while it is open."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gepipe.errors import ClosedError, ConfigError, GepipeError, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class RecordFile:
    """A locked file that only ever holds whole records, unless the machine stops in mid-write.

    Attributes:
        path: The file.
        end: Its size in bytes, as far as whole records reach.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._place = self.path.absolute()  # whatever folder the program goes to meanwhile
        self._fd = _opened(self.path)
        self.end = os.fstat(self._fd).st_size

    def append(self, data: bytes) -> None:
        """Write whole records behind the others, all of them or none.

        Raises:
            GepipeError: The disk is full or fails; the file is cut back to what it held before. Or
                somebody has cut or removed the file.
        """
        if self._fd >= 0:
            status = os.fstat(self._fd)
            if status.st_size < self.end or not status.st_nlink:
                raise self._changed()
        self.overwrite(self.end, data)
        self.end += len(data)

    def overwrite(self, offset: int, data: bytes) -> None:
        """Write `data` at `offset` without moving `end`."""
        if self._fd < 0:
            raise ClosedError(f"{str(self.path)!r} is closed")
        rest = memoryview(data)
        try:
            while rest:
                written = os.pwrite(self._fd, rest, offset)
                rest = rest[written:]
                offset += written
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._fd, self.end)
            self._fail(error)

    def cut(self, end: int) -> None:
        """Drop everything behind `end`."""
        try:
            os.ftruncate(self._fd, end)
        except OSError as error:
            self._fail(error)
        self.end = end

    def pread(self, count: int, offset: int) -> bytes:
        """Read up to `count` bytes at `offset`."""
        return os.pread(self._fd, count, offset)

    def lines(self) -> Iterator[tuple[bytes, int]]:
        """Yield each whole line with its end; a torn last line, or one holding NUL, ends it."""
        end = 0
        with os.fdopen(os.dup(self._fd), "rb") as file:
            file.seek(0)
            for line in file:
                # A power cut may leave blocks of zeros; text never holds any.
                if not line.endswith(b"\n") or b"\0" in line:
                    return
                end += len(line)
                yield line, end

    def require_unchanged(self) -> None:
        """Check that the file is still the one at its path, and no shorter than what it was given.

        Raises:
            GepipeError: Somebody has changed or removed it.
        """
        if self._fd < 0:
            return
        status = os.fstat(self._fd)
        try:
            same = os.path.samestat(status, self._place.stat())
        except OSError:
            same = False
        if not same or status.st_size < self.end:
            raise self._changed()

    def _changed(self) -> GepipeError:
        return GepipeError(
            f"{str(self.path)!r} was changed or removed while the run wrote it; run again with "
            "--resume to get back what is missing"
        )

    def close(self, *, discarded: bool = False) -> None:
        """Bring the file to the disk and unlock it. Closing twice is harmless.

        Args:
            discarded: The file is not needed any more and may be gone.

        Raises:
            GepipeError: The disk fails, or somebody has changed or removed the file.
        """
        if self._fd < 0:
            return
        try:
            if os.fstat(self._fd).st_size > self.end:  # an append was interrupted
                os.ftruncate(self._fd, self.end)
            os.fsync(self._fd)
            if not discarded:
                self.require_unchanged()
        except OSError as error:
            self._fail(error)
        finally:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)

    def _fail(self, error: OSError) -> NoReturn:
        hint = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            hint = "; make room and run again with --resume"
        raise GepipeError(f"cannot write {str(self.path)!r}: {reason_of(error)}{hint}") from error


def close_all(*closers: Callable[[], None]) -> None:
    """Call each, also where one before it fails; what went wrong first is raised."""
    first: BaseException | None = None
    for close in closers:
        try:
            close()
        except BaseException as error:  # noqa: BLE001 - raised below
            first = first or error
    if first is not None:
        raise first


def _opened(path: Path) -> int:
    shown = repr(str(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except IsADirectoryError as error:
        raise ConfigError(f"{shown} is a folder; expected a file to write to") from error
    except OSError as error:
        raise ConfigError(f"cannot write {shown}: {reason_of(error)}") from error
    except ValueError as error:  # a NUL byte in the path
        raise ConfigError(f"cannot write {shown}: {error}") from error
    try:
        _require_regular(fd, shown)
        _lock(fd, shown)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _require_regular(fd: int, shown: str) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise ConfigError(f"{shown} is a device, pipe or socket; expected a regular file")


def _lock(fd: int, shown: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError(
            f"{shown} is being written by another run; wait for it, or give this run another output"
        ) from error
    except OSError:
        return  # a file system without locks: two runs at once are then the user's to avoid
