"""Sources that read whole files: images by path, folder or glob, and lists of paths."""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar

from gepipe.errors import ConfigError, ItemError, reason_of
from gepipe.io.source import PLUGIN_CONFIG, Entry, start_folder
from gepipe.io.walk import IMAGE_EXTENSIONS, as_endings, as_paths, expand, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

_GIB = 1 << 30
_BLOCK_BYTES = 1 << 16
#: No path is nearly as long; what is longer is no list.
_LINE_BYTES = 1 << 20
#: /dev/null, which ends at once.
_NULL = os.makedev(1, 3)
_MISSING = (errno.ENOENT, errno.ENOTDIR)


@dataclass(frozen=True)
class FileReader:
    """Reads a file whole. The payload is the path's bytes.

    Args:
        max_bytes: A larger file is refused before it is read.
        folder: Where relative paths start, wherever an operator goes meanwhile; the current
            directory if empty.
    """

    max_bytes: int = _GIB
    folder: str = ""

    def read(self, payload: bytes) -> bytes:
        """Return the content of the file at `payload`.

        Raises:
            ItemError: `missing`, `unreadable`, `empty` or `too_large`.
        """
        name = os.fsdecode(payload)
        try:
            # Non-blocking, or a pipe without a writer would hold the worker for ever.
            path = os.path.join(os.fsencode(self.folder), payload)  # noqa: PTH118 - bytes
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            kind = "missing" if error.errno in _MISSING else "unreadable"
            raise ItemError(kind, _cannot(name, error)) from error
        except ValueError as error:  # a NUL byte in the path
            raise ItemError("unreadable", f"cannot read {name!r}: {error}") from error
        try:
            return self._content(fd, name)
        except OSError as error:
            raise ItemError("unreadable", _cannot(name, error)) from error
        finally:
            os.close(fd)

    def _content(self, fd: int, name: str) -> bytes:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            what = "a directory" if stat.S_ISDIR(status.st_mode) else "a device, pipe or socket"
            raise ItemError("unreadable", f"{name!r} is {what}; expected a regular file")
        size = status.st_size
        if size <= self.max_bytes:
            with os.fdopen(fd, "rb", buffering=0, closefd=False) as file:
                content = file.readall() or b""
            size = len(content)
        if size > self.max_bytes:
            raise ItemError(
                "too_large",
                f"{name!r} has {size:,} bytes; at most {self.max_bytes:,} are read; "
                "raise the source's max_bytes if the file is right",
            )
        if not content:
            raise ItemError("empty", f"{name!r} is an empty file")
        return content


def _cannot(name: str, error: OSError) -> str:
    return f"cannot read {name!r}: {reason_of(error)}"


@dataclass(frozen=True)
class ImageFiles:
    """Image files: a file, a folder, a glob, or a list of these.

    A folder's hidden files are skipped and links in it are followed, but never in a circle. The
    files of one folder or glob come in the byte order of their paths; several paths keep the
    order they are written in. A name that exists is taken as it stands, even if it holds `*`,
    `?` or `[`.

    Args:
        paths: Where the images are: a file, a folder, a glob (`**` matches any depth), or a list
            of them. A named file that does not exist fails as an item, unless it is the only path.
        recursive: Whether a folder's sub-folders are searched too.
        extensions: File name endings taken from folders, in any case. Files and globs that are
            named outright are taken whatever their ending.
        max_bytes: A larger file is set aside as `too_large` without being read.
    """

    paths: str | tuple[str, ...]
    recursive: bool = True
    extensions: tuple[str, ...] = IMAGE_EXTENSIONS
    max_bytes: int = _GIB

    shorthand: ClassVar[str] = "paths"
    finite: ClassVar[bool] = True
    __pydantic_config__: ClassVar[dict[str, str]] = PLUGIN_CONFIG

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", as_paths(self.paths))
        object.__setattr__(self, "extensions", as_endings(self.extensions))
        if not self.paths or not all(self.paths):
            raise ValueError("paths is empty; expected a file, a folder, a glob or a list of them")
        if self.max_bytes < 1:
            raise ValueError(f"max_bytes is {self.max_bytes}; expected at least 1")

    @property
    def reader(self) -> FileReader:
        """Reads a file's bytes."""
        return FileReader(self.max_bytes, start_folder())

    def entries(self) -> Iterator[Entry]:
        """Enumerate the files.

        Raises:
            ConfigError: A folder or glob holds no image, or the only path does not exist.
        """
        for path in self.paths:
            for found in expand(
                os.fsencode(path),
                recursive=self.recursive,
                extensions=tuple(os.fsencode(ending) for ending in self.extensions),
                must_exist=len(self.paths) == 1,
            ):
                yield Entry(os.fsdecode(found), found)


@dataclass(frozen=True)
class FileList:
    r"""A text file that names one file a line; `-` reads the list from standard input.

    Empty lines are skipped. There are no comments and no quoting: any other line is a path, to
    its last byte, because names may begin with `#` and end with a space. A path with a newline
    in it needs `null_separated`. A UTF-8 byte order mark and `\r\n` line ends are understood.
    Relative paths are relative to the current directory or else to the list's folder: the first
    path that exists in one of the two decides for the whole list.

    Args:
        path: The list, or `-` for standard input.
        null_separated: Whether the paths end with a NUL byte instead of a newline, as
            `find -print0` writes them.
        max_bytes: A larger file is set aside as `too_large` without being read.
    """

    path: str
    null_separated: bool = False
    max_bytes: int = _GIB

    shorthand: ClassVar[str] = "path"
    finite: ClassVar[bool] = True
    __pydantic_config__: ClassVar[dict[str, str]] = PLUGIN_CONFIG

    @property
    def reader(self) -> FileReader:
        """Reads a file's bytes."""
        return FileReader(self.max_bytes, start_folder())

    def entries(self) -> Iterator[Entry]:
        """Enumerate the files that the list names, whether or not they exist.

        Raises:
            ConfigError: The list cannot be read or names no file.
        """
        folder = None if self.path == "-" else os.path.dirname(os.fsencode(self.path))  # noqa: PTH120
        base: bytes | None = None if folder else b""
        empty = True
        with self._opened() as file:
            for name in _names(file, b"\0" if self.null_separated else b"\n", self._shown):
                path = name
                if not os.path.isabs(name):  # noqa: PTH117 - paths here are bytes
                    if base is None and folder is not None:
                        base = _base_of(name, folder)
                    path = os.path.join(base or b"", name)  # noqa: PTH118
                empty = False
                yield Entry(os.fsdecode(path), path)
        if empty:
            raise ConfigError(f"{self._shown}: the list is empty; expected one path a line")

    @property
    def _shown(self) -> str:
        return "standard input" if self.path == "-" else shown(os.fsencode(self.path))

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        if self.path == "-":
            if sys.stdin is None:
                raise ConfigError(f"{self._shown} is closed; the list of files comes from there")
            _refuse_device(sys.stdin.buffer, self._shown)
            yield sys.stdin.buffer
            return
        try:
            file = Path(self.path).open("rb")  # noqa: SIM115 - only what opening raises is caught
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
            why = reason_of(error)
            raise ConfigError(
                f"{self._shown}: cannot read this list of files: {why}; expected a text file "
                "with one path a line"
            ) from error
        with file:
            _refuse_device(file, self._shown)
            yield file


def _base_of(name: bytes, folder: bytes) -> bytes | None:
    if os.path.lexists(name):
        return b""
    return folder if os.path.lexists(os.path.join(folder, name)) else None  # noqa: PTH118


def _refuse_device(file: BinaryIO, shown: str) -> None:
    """Refuse a device such as /dev/zero, which never ends; a terminal does, and so does a pipe.

    Raises:
        ConfigError: It is one.
    """
    try:
        status = os.fstat(file.fileno())
    except OSError:  # held in memory
        return
    is_device = stat.S_ISBLK(status.st_mode) or stat.S_ISCHR(status.st_mode)
    if is_device and not file.isatty() and status.st_rdev != _NULL:
        raise ConfigError(f"{shown} is a device; expected a text file with one path a line")


def _block(file: BinaryIO, shown: str) -> bytes:
    try:
        return file.read(_BLOCK_BYTES)
    except OSError as error:
        why = reason_of(error)
        raise ConfigError(f"{shown}: cannot read this list of files: {why}") from error


def _names(file: BinaryIO, separator: bytes, shown: str) -> Iterator[bytes]:
    """Yield the non-empty names of a list, reading it in blocks."""
    text = separator == b"\n"
    rest, first = b"", True
    while True:
        block = _block(file, shown)
        if first and text:
            block = block.removeprefix(b"\xef\xbb\xbf")
        first = False
        *whole, rest = (rest + block).split(separator)
        if len(rest) > _LINE_BYTES:
            ends = "line break" if text else "NUL byte"
            raise ConfigError(
                f"{shown}: {len(rest):,} bytes without a {ends}; expected a text file with one "
                "path a line"
            )
        if not block and rest:
            whole, rest = [rest], b""
        for name in whole:
            clean = name.removesuffix(b"\r") if text else name
            if clean:
                yield clean
        if not block:
            return
