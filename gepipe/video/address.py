"""What FFmpeg is to open for a source: a path or an address as it understands it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import Final

from gepipe.errors import ItemError, reason_of
from gepipe.io.videos import is_address

#: What FFmpeg is told of a live stream: to look at one second at most before it begins.
_LIVE: Final = {"analyzeduration": "1000000"}


def is_pipe(path: bytes) -> bool:
    """Whether a source is a pipe: opening it waits for a writer, and what came is gone."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)  # noqa: PTH116 - bytes
    except (OSError, ValueError):
        return False


@dataclass
class Address:
    """Something to open.

    Attributes:
        text: What to pass.
        options: Options of the protocol.
        is_remote: Whether a network is in between.
    """

    text: str
    options: dict[str, str] = field(default_factory=dict)
    is_remote: bool = False
    _fd: int = -1

    @classmethod
    def of(cls, path: bytes, *, live: bool = False) -> Address:
        """Return what to open for a source.

        Args:
            path: A path or an address.
            live: Whether to begin as soon as possible.

        Raises:
            ItemError: There is no such file (`missing`), nothing in it (`empty`), or it is none
                (`unreadable`).
        """
        name = os.fsdecode(path)
        if is_address(path):
            options = dict(_LIVE) if live else {}
            if path.lower().startswith(b"rtsp"):
                options["rtsp_transport"] = "tcp"
            return cls(name, options, is_remote=True)
        try:
            status = os.stat(path)  # noqa: PTH116 - bytes
        except (OSError, ValueError) as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            why = reason_of(error)
            kind = "missing" if missing else "unreadable"
            raise ItemError(kind, f"cannot read {name!r}: {why}") from error
        if os.path.isdir(path):  # noqa: PTH112 - bytes
            raise ItemError("unreadable", f"{name!r} is a folder; expected a video")
        if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
            raise ItemError("unreadable", f"{name!r} is a device, and no camera")
        if stat.S_ISSOCK(status.st_mode):
            raise ItemError("unreadable", f"{name!r} is a socket; expected a video")
        if is_pipe(path) and not live:
            raise ItemError(
                "unreadable",
                f"{name!r} is a pipe; expected a file; set live: true of the source to take what "
                "comes through it",
            )
        if status.st_size == 0 and os.path.isfile(path):  # noqa: PTH113 - bytes
            raise ItemError("empty", f"{name!r} is an empty file")
        try:
            path.decode("utf-8")
        except UnicodeDecodeError:  # FFmpeg is given text
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return cls(f"file:/proc/self/fd/{fd}", _fd=fd)
        # Without the protocol, a name such as `a:b.mp4` would be taken for an address.
        return cls(f"file:{name}")

    def close(self) -> None:
        """Let go of what is open for it. Closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
