"""What was found, and the machine that is looked at."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from gepipe.diagnosis.probe import Probe


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
        state: `ok`, `warning` or `error`.
        what: The thing.
        text: What was found, and what to do.
    """

    state: Literal["ok", "warning", "error"]
    what: str
    text: str


def installed(package: str) -> str | None:
    """Return the version of an installed package, None if it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _probed(host: Host) -> Probe:
    from gepipe.diagnosis.probe import probe

    return probe(host.environ)


@dataclass(frozen=True)
class Host:
    """The machine, as it can be exchanged in tests.

    Attributes:
        root: Where the file system begins.
        environ: The environment.
        uid: The user.
        groups: The user's groups.
        python: Version of this Python.
        package_version: Tells the version of an installed package.
        ask_acl: Imports and asks `acl` in a process of its own.
    """

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    uid: int = field(default_factory=os.geteuid)
    groups: frozenset[int] = field(
        default_factory=lambda: frozenset((os.getegid(), *os.getgroups()))
    )
    python: tuple[int, int] = (sys.version_info.major, sys.version_info.minor)
    package_version: Callable[[str], str | None] = installed
    ask_acl: Callable[[Host], Probe] = _probed

    def path(self, absolute: str) -> Path:
        """Return an absolute path below the root."""
        return self.root / absolute.lstrip("/")

    def read(self, absolute: str) -> str:
        """Return the text of a file below the root; empty if it cannot be read."""
        try:
            return self.path(absolute).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    @property
    def is_emulated(self) -> bool:
        """Whether the environment asks for the emulator."""
        return self.environ.get("GEPIPE_ACL") == "emulator"

    @property
    def machine(self) -> str:
        """The processor's architecture."""
        return platform.machine()


def sized(nbytes: int) -> str:
    """Return a size in words, such as `9.6 GiB`."""
    return f"{nbytes / 2**30:.1f} GiB" if nbytes >= 2**30 else f"{nbytes / 2**20:.1f} MiB"
