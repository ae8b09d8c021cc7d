"""Reads files out of packages of Debian: an `ar` archive with a compressed tar inside.

Neither root nor Debian is needed: the archive is fetched from Debian's own address, else, as where
only a mirror can be reached, by `apt-get download`.
"""

from __future__ import annotations

import io
import lzma
import shutil
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote

from .command import said_by
from .parts import Member, Package

#: Debian's own address, which leads to the nearest mirror.
_ARCHIVE: Final = "https://deb.debian.org/debian/pool/main"
_TIMEOUT_S: Final = 60
_MAGIC: Final = b"!<arch>\n"
_HEAD_BYTES: Final = 60


class NoArchiveError(OSError):
    """The package could not be fetched. The message lists what was tried."""


def address(package: Package) -> str:
    """Return where Debian has a package, `source/name_version_architecture.deb`."""
    source, _, name = package.requirement.partition("/")
    return f"{_ARCHIVE}/{source[0]}/{source}/{quote(name)}"


def download(package: Package, folder: Path) -> Path:
    """Bring the archive of a package into a folder, and return its path.

    Raises:
        NoArchiveError: It could not be fetched in any way.
    """
    path = folder / "package.deb"
    try:
        with (
            urllib.request.urlopen(address(package), timeout=_TIMEOUT_S) as answer,  # noqa: S310
            path.open("wb") as file,
        ):
            shutil.copyfileobj(answer, file, 1 << 20)
    except (OSError, ValueError) as error:
        first = f"  {address(package)}: {error}"
    else:
        return path
    name = package.requirement.partition("/")[2].partition("_")[0]
    second = f"  apt-get download {name}: {_apt(name, folder)}"
    found = list(folder.glob(f"{name}_*.deb"))
    if found:
        return found[0]
    raise NoArchiveError(f"is Debian reachable from here? tried:\n{first}\n{second}")


def _apt(name: str, folder: Path) -> str:
    code, lines = said_by(["apt-get", "download", "--quiet", name], folder)
    if code is None:
        return lines[0]
    errors = [line for line in lines if line.startswith("E:")]
    return (errors or [f"exit code {code}"])[0]


def read(path: Path, members: Sequence[Member]) -> dict[Member, bytes]:
    """Return files of a package, in one pass over what is one compressed stream.

    Raises:
        KeyError: One is missing, or is no file.
        tarfile.TarError: The archive is damaged.
    """
    wanted = {member.path: member for member in members}
    found: dict[Member, bytes] = {}
    with (
        path.open("rb") as archive,
        _content(archive) as content,
        tarfile.open(fileobj=content, mode="r|") as files,
    ):
        for entry in files:
            name = entry.name.removeprefix("./")
            if name in wanted and (file := files.extractfile(entry)) is not None:
                found[wanted.pop(name)] = file.read()
            if not wanted:
                return found
    raise KeyError(f"no file {next(iter(wanted))!r} in the archive")


@contextmanager
def _content(archive: IO[bytes]) -> Iterator[IO[bytes]]:
    """Give the tar of a package's files, unpacked as it is read.

    Raises:
        tarfile.TarError: There is none.
    """
    if archive.read(len(_MAGIC)) != _MAGIC:
        raise tarfile.ReadError("not a package of Debian")
    while head := archive.read(_HEAD_BYTES):
        try:
            name, size = head[:16].decode("ascii").strip(" /"), int(head[48:58])
        except ValueError as error:
            raise tarfile.ReadError("a damaged package of Debian") from error
        if not name.startswith("data.tar"):
            archive.seek(size + size % 2, io.SEEK_CUR)
            continue
        ending = name.removeprefix("data.tar")
        if ending == ".xz":
            with lzma.open(archive) as content:
                yield content
        elif ending == ".gz":
            with tempfile.TemporaryFile() as plain:
                plain.write(zlib.decompress(archive.read(size), wbits=31))
                plain.seek(0)
                yield plain
        elif not ending:
            yield archive
        else:
            raise tarfile.ReadError(f"packed as {ending}, which is not understood")
        return
    raise tarfile.ReadError("no files in this package of Debian")
