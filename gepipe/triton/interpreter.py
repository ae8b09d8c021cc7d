"""Finds the Python that Triton's stub processes run in."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gepipe.errors import ConfigError

#: Python versions for which there are a stub and a NumPy below 2, which the stub needs.
SUPPORTED: Final = ("3.12", "3.11", "3.10")
_PROBE: Final = """
import ctypes, json, os, sys, sysconfig
version = "%d.%d" % sys.version_info[:2]
name = "libpython%s.so.1.0" % version
found = ""
for folder in (sysconfig.get_config_var("LIBDIR") or "", os.path.join(sys.base_prefix, "lib")):
    if os.path.exists(os.path.join(folder, name)):
        found = os.path.join(folder, name)
        break
else:
    try:
        ctypes.CDLL(name)
    except OSError:
        found = None
print(json.dumps([version, sys.executable, found]))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python.

    Attributes:
        path: Its program.
        version: Such as `3.11`.
        library: Its libpython; None where the dynamic linker finds that by itself.
    """

    path: Path
    version: str
    library: Path | None


def find(asked: str | None = None) -> Interpreter:
    """Return a Python that a stub can run in.

    Args:
        asked: A path, a command or a version such as `3.11`; by default the one that runs this,
            else the newest on PATH.

    Raises:
        ConfigError: There is none, or the one asked for does not do.
    """
    if asked is not None:
        return _checked(f"python{asked}" if asked[:1].isdigit() else asked)
    complaints: list[str] = []
    for command in _candidates():
        try:
            return _checked(command)
        except ConfigError as error:
            complaints.append(str(error))
    reasons = "".join(f"\n  {each}" for each in complaints)
    raise ConfigError(
        f"no Python for Triton's stubs; expected 3.10, 3.11 or 3.12 with its libpython; name one "
        f"with --python{reasons}"
    )


def own() -> str:
    """Return the version of the Python that runs this, such as `3.11`."""
    return "{}.{}".format(*sys.version_info[:2])


def _candidates() -> Iterator[str]:
    yield sys.executable
    for version in SUPPORTED:
        if version != own() and shutil.which(f"python{version}"):
            yield f"python{version}"


def _checked(command: str) -> Interpreter:
    program = shutil.which(command)
    if program is None:
        raise ConfigError(f"{command}: no such Python; expected a path, or a version such as 3.11")
    found = probe(Path(program))
    if found.version not in SUPPORTED:
        raise ConfigError(
            f"{command}: Python {found.version}; expected 3.10, 3.11 or 3.12, for which there are "
            "a stub and a NumPy below 2"
        )
    return found


def probe(program: Path) -> Interpreter:
    """Ask a Python what it is.

    Raises:
        ConfigError: It does not run, or its libpython is missing.
    """
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Python
            [program, "-I", "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        version, path, library = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{program}: not a Python that runs: {error}") from error
    if library is None:
        raise ConfigError(
            f"{program}: libpython{version}.so.1.0 is missing; on Debian and Ubuntu: apt-get "
            f"install libpython{version}; or name another Python with --python"
        )
    return Interpreter(Path(path), version, Path(library) if library else None)
