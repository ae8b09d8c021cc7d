"""What the sources of text share: which files they read, and how a text travels to a worker."""

from __future__ import annotations

import codecs
import io
import os
import stat
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Final

from gepipe.errors import ConfigError, ItemError, reason_of
from gepipe.io.source import PLUGIN_CONFIG
from gepipe.io.walk import as_paths, expand, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Longest text that is taken, where the YAML says nothing: a book has about so many bytes.
MAX_BYTES: Final = 1 << 20
STDIN: Final = "-"
_BLOCK_BYTES: Final = 1 << 16
_BOM: Final = codecs.BOM_UTF8
#: What is looked at to tell a text from something else.
_HEAD_BYTES: Final = 1024
# What a payload begins with: a text follows, or why there is none.
_TEXT, _TOO_LARGE, _NO_FIELD, _BAD_ROW = b"t", b"l", b"n", b"b"


@dataclass(frozen=True)
class TextFiles:
    """The files of a source of text.

    Args:
        paths: A file, a folder, a glob (`**` matches any depth), or a list of them; `-` reads from
            standard input. The files of a folder or a glob come in the byte order of their paths.
    """

    paths: str | tuple[str, ...]

    shorthand: ClassVar[str] = "paths"
    finite: ClassVar[bool] = True
    #: File name endings taken from folders, in any case.
    endings: ClassVar[tuple[bytes, ...]] = ()
    #: What a file holds, for messages.
    content: ClassVar[str] = ""
    __pydantic_config__: ClassVar[dict[str, str]] = PLUGIN_CONFIG

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", as_paths(self.paths))
        if not self.paths or not all(self.paths):
            raise ValueError("paths is empty; expected a file, a folder, a glob or a list of them")
        if STDIN in self.paths and len(self.paths) > 1:
            raise ValueError("paths has - (standard input) beside files; expected it alone")

    @property
    def path(self) -> str:
        """The only path; empty where there are several."""
        return self.paths[0] if len(self.paths) == 1 else ""

    def files(self) -> Iterator[bytes]:
        """Yield the paths of the files.

        Raises:
            ConfigError: There is nothing to read where the source was told to look.
        """
        for path in self.paths:
            if path == STDIN:
                yield os.fsencode(path)
                continue
            yield from expand(
                os.fsencode(path),
                recursive=True,
                extensions=self.endings,
                must_exist=True,
                what=f"{self.content} file",
            )

    @contextmanager
    def opened(self, path: bytes) -> Iterator[BinaryIO]:
        """Open one of the files.

        Raises:
            ConfigError: It cannot be read.
        """
        name = "standard input" if path == os.fsencode(STDIN) else shown(path)
        try:
            if path == os.fsencode(STDIN):
                if sys.stdin is None:
                    raise ConfigError(f"{name} is closed; the inputs come from there")
                _refuse_device(sys.stdin.buffer, name)
                _refuse_binary(sys.stdin.buffer, name)
                yield sys.stdin.buffer
                return
            with Path(os.fsdecode(path)).open("rb") as file:
                _refuse_device(file, name)
                _refuse_binary(file, name)
                yield file
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
            why = reason_of(error)
            raise ConfigError(f"{name}: cannot read this {self.content} file: {why}") from error


def _refuse_device(file: BinaryIO, name: str) -> None:
    """Refuse a device; a terminal is none, nor is a pipe.

    Raises:
        ConfigError: It is a device such as /dev/zero, which never ends.
    """
    try:
        mode = os.fstat(file.fileno()).st_mode
        endless = (stat.S_ISBLK(mode) or stat.S_ISCHR(mode)) and not file.isatty()
    except OSError:  # held in memory
        endless = False
    if endless and os.fstat(file.fileno()).st_rdev != os.makedev(1, 3):  # /dev/null ends at once
        raise ConfigError(f"{name} is a device; expected a file")


def _refuse_binary(file: BinaryIO, name: str) -> None:
    """Refuse what is no text in UTF-8 from its beginning on.

    Raises:
        ConfigError: It is UTF-16, or a picture or the like.
    """
    head = file.peek(_HEAD_BYTES)[:_HEAD_BYTES] if isinstance(file, io.BufferedReader) else b""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ConfigError(
            f"{name} is UTF-16; expected UTF-8; convert it, as with iconv -f utf-16 -t utf-8"
        )
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # the last letter may be cut
    except UnicodeDecodeError as error:
        if b"\0" in head:
            raise ConfigError(f"{name} is no text file; expected text in UTF-8") from error


def lines(file: BinaryIO, max_bytes: int) -> Iterator[tuple[int, bytes, int]]:
    r"""Yield the lines of a file: number from 1, content without `\n` or `\r\n`, and length.

    A byte order mark in front of the first is left out. Of a line longer than `max_bytes` the
    content is empty: no more of it is held than that.
    """
    number = 0
    longest = max_bytes + len(_BOM) + len(b"\r\n")
    while line := file.readline(longest):
        number += 1
        if number == 1:
            line = line.removeprefix(_BOM)
        size = len(line)
        if not line.endswith(b"\n") and size > max_bytes:
            while rest := file.readline(_BLOCK_BYTES):
                size += len(rest)
                if rest.endswith(b"\n"):
                    size -= 1
                    break
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        size -= min(len(line) - len(text), size)
        yield number, (text if size <= max_bytes else b""), size


def text_payload(text: bytes) -> bytes:
    """Return what travels for a text, which need not be UTF-8."""
    return _TEXT + text


def too_large(size: int, max_bytes: int) -> bytes:
    """Return what travels for a text that is longer than the source takes."""
    return (
        _TOO_LARGE
        + (
            f"{size:,} bytes; at most {max_bytes:,} are taken; raise the source's max_bytes if the "
            "row is right"
        ).encode()
    )


def no_field(why: str) -> bytes:
    """Return what travels for a row without the field."""
    return _NO_FIELD + why.encode("utf-8", "backslashreplace")


def bad_row(why: str) -> bytes:
    """Return what travels for a row that cannot be understood."""
    return _BAD_ROW + why.encode("utf-8", "backslashreplace")


@dataclass(frozen=True)
class TextReader:
    """Gives a worker the text that travels in an input's payload.

    Args:
        max_bytes: Longest text that the source takes.
    """

    max_bytes: int = MAX_BYTES

    def read(self, payload: bytes) -> bytes:
        """Return the text in UTF-8.

        Raises:
            ItemError: `too_large`, `no_field`, `bad_row` or `not_text`.
        """
        kind, text = payload[:1], payload[1:]
        if kind == _TEXT:
            return checked(text)
        why = text.decode()
        if kind == _TOO_LARGE:
            raise ItemError("too_large", why)
        if kind == _NO_FIELD:
            raise ItemError("no_field", why)
        raise ItemError("bad_row", why)


def checked(text: bytes) -> bytes:
    """Return the text, which is UTF-8.

    Raises:
        ItemError: `not_text`: it is not.
    """
    try:
        text.decode()
    except UnicodeDecodeError as error:
        near = text[max(error.start - 8, 0) : error.start + 8]
        raise ItemError(
            "not_text",
            f"byte {error.start} is not UTF-8: {near!r}; save the file as UTF-8, as with "
            "iconv -f latin1 -t utf-8",
        ) from error
    return text
