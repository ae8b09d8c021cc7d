"""Private environments for Triton: a server, and the packages that its stub processes import.

A stub needs NumPy below 2 and the Python that it was built for, whatever gepipe itself runs in.
So each Python version gets a virtual environment in the user's cache, with gepipe copied into it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, Final

from gepipe.errors import ConfigError
from gepipe.machine import cache_folder
from gepipe.triton import interpreter
from gepipe.triton.interpreter import Interpreter

#: What to do where a library of ours for Triton is missing, at the end of a message.
EXTRA: Final = "install it: pip install 'gepipe[triton]'"
#: The package that brings the server, and the version of Triton in it.
SERVER: Final = "nvidia-pytriton==0.7.0"
SERVER_VERSION: Final = "2.51.0"
_STAMP: Final = "gepipe.json"


@dataclass(frozen=True)
class Environment:
    """A private environment.

    Attributes:
        folder: Where it is.
        interpreter: The Python that it is made from.
    """

    folder: Path
    interpreter: Interpreter

    @property
    def python(self) -> Path:
        """Its own Python."""
        return self.folder / "bin" / "python3"

    @property
    def packages(self) -> Path:
        """Its site-packages."""
        return self.folder / "lib" / f"python{self.interpreter.version}" / "site-packages"

    @property
    def libraries(self) -> Path:
        """Where its libpython is linked, if the dynamic linker does not find it by itself."""
        return self.folder / "libpython"

    def stamp(self) -> dict[str, Any]:
        """Return what was installed; empty unless that came to its end."""
        try:
            found: dict[str, Any] = json.loads((self.folder / _STAMP).read_text())
        except (OSError, ValueError):
            return {}
        return found

    def set_stamp(self, stamp: dict[str, Any]) -> None:
        """Note what was installed."""
        part = self.folder / f"{_STAMP}.part"
        part.write_text(json.dumps(stamp, indent=1, sort_keys=True))
        part.replace(self.folder / _STAMP)


def environment_for(python: Interpreter) -> Environment:
    """Return the environment for a Python, made or not."""
    name = f"{SERVER_VERSION}-py{python.version}"
    return Environment(cache_folder("triton") / name, python)


def existing(version: str | None = None) -> Environment:
    """Return an environment that is made: for that version of Python, else for this, or the newest.

    Raises:
        ConfigError: There is none yet.
    """
    by_preference = sorted(interpreter.SUPPORTED, key=lambda each: each != interpreter.own())
    versions = by_preference if version is None else [version]
    own = cache_folder("triton")
    for each in versions:
        made = environment_for(Interpreter(Path(f"python{each}"), each, None))
        if made.stamp():
            return made
    option = f" --python {version}" if version else ""
    raise ConfigError(
        f"Triton is not installed; expected --server PATH, $TRITON_HOME, /opt/tritonserver, or an "
        f"environment in {own}; to make that: gepipe triton install{option}"
    )


def digest_of(package: Distribution) -> str:
    """Return a hash of what a distribution says it consists of."""
    return digest(package.version, package.read_text("RECORD") or "")


def digest(version: str, record: str) -> str:
    """Return a hash of what a package consists of, whoever has installed it where."""
    kept = sorted(line for line in record.splitlines() if _is_content(line.split(",")[0]))
    return hashlib.sha256("\n".join([version, *kept]).encode()).hexdigest()[:16]


def _is_content(name: str) -> bool:
    if name.startswith("..") or name.endswith(".pyc"):
        return False
    return ".dist-info/" not in name or name.endswith(("/METADATA", "/entry_points.txt"))
