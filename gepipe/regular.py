"""Reads small files whole, and refuses what is no such file before it takes all memory or time."""

from __future__ import annotations

import errno
import os
import stat


def read_regular(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file.
        max_bytes: Largest size accepted.

    Raises:
        OSError: It cannot be read, is a device or a pipe, which may never end, or is too large.
    """
    try:
        # Non-blocking, or a pipe without a writer would be waited for.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except ValueError as error:  # a NUL byte in the path
        raise OSError(errno.EINVAL, str(error)) from error
    content = bytearray()
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # reading a folder says what it is
            raise OSError(errno.EINVAL, "a device, pipe or socket; expected a regular file")
        while len(content) <= max_bytes and (block := os.read(fd, 1 << 20)):
            content += block
    finally:
        os.close(fd)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes:,} bytes")
    return bytes(content)
