"""Finds files under a path: the path itself, a folder's content, or what a glob matches.

Paths are bytes throughout, because a file name on Linux is bytes and need not be UTF-8.
"""
# pathlib knows no bytes and is slow for millions of files:
# ruff: noqa: PTH109, PTH110, PTH111, PTH112, PTH116, PTH117, PTH118, PTH119, PTH207

from __future__ import annotations

import glob
import heapq
import os
import tempfile
from itertools import chain, islice
from typing import TYPE_CHECKING, BinaryIO, Final

from gepipe.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Endings that the image decoders know.
IMAGE_EXTENSIONS: Final = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".dib", ".tif", ".tiff", ".gif",
    ".ppm", ".pgm", ".pnm",
)  # fmt: skip
#: Names of one folder that are sorted in memory; more are sorted in parts on disk.
_SORT_COUNT: Final = 250_000


def is_glob(path: bytes) -> bool:
    """Whether `path` holds a glob's special characters."""
    return any(char in path for char in b"*?[")


def is_image(path: str) -> bool:
    """Whether a path's ending is one of an image."""
    return path.lower().endswith(IMAGE_EXTENSIONS)


def holds(path: str, endings: tuple[str, ...]) -> bool:
    """Whether a path is a folder with a file in it, or below, that has one of the endings."""
    folder = os.fsencode(path)
    wanted = tuple(os.fsencode(ending) for ending in endings)
    return os.path.isdir(folder) and any(
        found != folder for found in walk(folder, recursive=True, extensions=wanted)
    )


def as_paths(given: str | os.PathLike[str] | Iterable[str]) -> tuple[str, ...]:
    """Return the paths of a source, of which one may be given by itself."""
    paths = (given,) if isinstance(given, str | os.PathLike) else given
    return tuple(os.fspath(path) for path in paths)


def as_endings(given: Iterable[str]) -> tuple[str, ...]:
    """Return file name endings in lower case, with their dot."""
    return tuple("." + ending.lower().lstrip(".") for ending in given)


def shown(path: bytes) -> str:
    """Return `path` as messages quote it."""
    return repr(os.fsdecode(path))


def expand(
    path: bytes,
    *,
    recursive: bool,
    extensions: tuple[bytes, ...],
    must_exist: bool,
    what: str = "image",
) -> Iterator[bytes]:
    """Yield the files that `path` stands for, in byte order; messages call one of them `what`.

    Raises:
        ConfigError: A folder or a glob yields nothing, or `path` does not exist and must.
    """
    if path.startswith(b"~") and not os.path.lexists(path):
        path = os.path.expanduser(path)
    if os.path.isdir(path):
        found = walk(path, recursive=recursive, extensions=extensions)
        if (first := next(found, None)) is None:
            raise ConfigError(_empty(path, what, recursive=recursive, extensions=extensions))
        if first == path:
            raise ConfigError(f"{shown(path)}: this folder cannot be listed; check its permissions")
        yield from chain((first,), found)
    elif os.path.lexists(path) or not is_glob(path):
        if must_exist and not os.path.exists(path):
            raise ConfigError(f"{shown(path)}: no such file or folder{_where(path)}")
        yield path
    else:
        yield from _matches(path, recursive=recursive, extensions=extensions)


def _matches(path: bytes, *, recursive: bool, extensions: tuple[bytes, ...]) -> Iterator[bytes]:
    any_depth = b"**" in path
    empty = True
    for match in sorted(set(glob.iglob(path, recursive=True))):
        if not os.path.isdir(match):
            empty = False
            yield match
        elif not any_depth:  # with `**` the folder's files are matches of their own
            for found in walk(match, recursive=recursive, extensions=extensions):
                empty = False
                yield found
    if empty:
        raise ConfigError(f"{shown(path)}: this glob matches no file{_where(path)}")


def _where(path: bytes) -> str:
    return "" if os.path.isabs(path) else f" in {os.getcwd()!r}"


def walk(
    folder: bytes,
    *,
    recursive: bool,
    extensions: tuple[bytes, ...],
    above: frozenset[object] = frozenset(),
) -> Iterator[bytes]:
    """Yield the files below `folder` that end with one of `extensions`, in byte order of the path.

    A sub-folder that cannot be listed is yielded itself: reading it then fails as an item, where
    leaving it out would lose its files without a word.
    """
    try:
        status = os.stat(folder)
        names = _sorted(_names(folder, recursive=recursive, extensions=extensions))
        # The names are read here, so that an unreadable folder is noticed before its first file.
        first = next(names, None)
    except OSError:
        yield folder
        return
    here = (status.st_dev, status.st_ino)
    if first is None or here in above:
        return
    for name in chain((first,), names):
        if name.endswith(b"/"):
            inner = os.path.join(folder, name[:-1])
            yield from walk(inner, recursive=True, extensions=extensions, above=above | {here})
        else:
            yield os.path.join(folder, name)


def _names(folder: bytes, *, recursive: bool, extensions: tuple[bytes, ...]) -> Iterator[bytes]:
    """Yield the names of wanted files, and of folders with a `/` behind, which sorts them right."""
    with os.scandir(folder) as listing:
        for entry in listing:
            if entry.name.startswith(b"."):
                continue
            if _is_folder(entry):
                if recursive:
                    yield entry.name + b"/"
            elif entry.name.lower().endswith(extensions):
                yield entry.name


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or into a place that is closed to us
        return False


def _sorted(names: Iterator[bytes]) -> Iterator[bytes]:
    """Sort in bounded memory: all at once if few, else in parts kept in temporary files."""
    parts: list[BinaryIO] = []
    while part := sorted(islice(names, _SORT_COUNT)):
        if not parts and len(part) < _SORT_COUNT:
            return iter(part)
        file = tempfile.TemporaryFile(prefix="gepipe-")  # noqa: SIM115 - unlinked; lives as long as its iterator
        file.write(b"\0".join(part))
        file.seek(0)
        parts.append(file)
    return heapq.merge(*map(_stored, parts))


def _stored(file: BinaryIO) -> Iterator[bytes]:
    rest = b""
    with file:
        while block := file.read(1 << 16):
            *whole, rest = (rest + block).split(b"\0")
            yield from whole
        if rest:
            yield rest


def _empty(folder: bytes, what: str, *, recursive: bool, extensions: tuple[bytes, ...]) -> str:
    others = walk(folder, recursive=recursive, extensions=(b"",))
    endings = ", ".join(os.fsdecode(ending) for ending in extensions)
    below = ", sub-folders included" if recursive else ", without sub-folders"
    text = f"{shown(folder)}: no {what} in this folder{below}; looked for {endings}"
    if (other := next(others, None)) is not None:
        text += f"; there are other files, such as {shown(os.path.basename(other))}"
    return text
