"""Finds an installation of Triton: the server, its Python backend, the stub and its Python."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from gepipe.errors import ConfigError
from gepipe.triton import environment, interpreter

STUB: Final = "triton_python_backend_stub"
UTILS: Final = "triton_python_backend_utils.py"
_OFFICIAL: Final = Path("/opt/tritonserver")
_LINKED: Final = re.compile(rb"libpython(3\.\d+)\.so")


@dataclass(frozen=True)
class Kit:
    """What a server is started from.

    Attributes:
        server: The program tritonserver.
        version: Of Triton, such as `2.51.0`; empty where no file tells.
        backend: Folder of its Python backend.
        stub: The stub for `python`.
        python: The Python that stubs run in.
        python_version: Its version, such as `3.11`.
        libraries: Folders in which the dynamic linker must look.
    """

    server: Path
    version: str
    backend: Path
    stub: Path
    python: Path
    python_version: str
    libraries: tuple[Path, ...]

    def environ(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment for the server; its stubs run the first `python3` on PATH.

        Args:
            base: What it is made from; this process's by default.
        """
        made = dict(os.environ if base is None else base)
        for name, folders in (
            ("LD_LIBRARY_PATH", self.libraries),
            ("PATH", (self.python.parent,)),
        ):
            parts = [*map(str, folders), *filter(None, [made.get(name)])]
            made[name] = os.pathsep.join(parts)
        made.pop("PYTHONEXECUTABLE", None)  # it would choose another Python than PATH does
        return made


def find(server: Path | None = None, python: str | None = None) -> Kit:
    """Find Triton.

    Args:
        server: The program, or the folder of its installation. By default `$TRITON_HOME`,
            /opt/tritonserver, or what `gepipe triton install` has fetched, in this order.
        python: The Python for the stubs: a path or a command, or such as `3.11` for the private
            environment of that version; by default the private environment that fits.

    Raises:
        ConfigError: There is none, or no Python that fits its stub.
    """
    if server is None and (named := os.environ.get("TRITON_HOME")):
        server = Path(named)
    if server is None and (_OFFICIAL / "bin" / "tritonserver").exists():
        server = _OFFICIAL
    if server is not None:
        return _installed(_home_of(server), python)
    if python is None or python in interpreter.SUPPORTED:
        return of_environment(environment.existing(python))
    found = interpreter.find(python)
    made = of_environment(environment.existing())
    stub = made.stub.parent.parent / found.version / STUB
    libraries = (made.libraries[0], *_folders(found))
    return replace(
        made, stub=stub, python=found.path, python_version=found.version, libraries=libraries
    )


def of_environment(made: environment.Environment) -> Kit:
    """Return the kit of a private environment that holds the server too."""
    home = made.packages / "pytriton" / "tritonserver"
    return Kit(
        _program(home),
        environment.SERVER_VERSION,
        home / "backends" / "python",
        home / "python_backend_stubs" / made.interpreter.version / STUB,
        made.python,
        made.interpreter.version,
        (made.packages / "nvidia_pytriton.libs", made.libraries),
    )


def _folders(python: interpreter.Interpreter) -> tuple[Path, ...]:
    return (python.library.parent,) if python.library else ()


def _home_of(path: Path) -> Path:
    path = path.expanduser().resolve()
    if path.is_dir():
        return path
    if not path.exists():
        raise ConfigError(f"{path}: no such file; expected tritonserver, or the folder above bin")
    return path.parent.parent


def _program(home: Path) -> Path:
    program = home / "bin" / "tritonserver"
    if not os.access(program, os.X_OK):
        raise ConfigError(f"{program}: no such program; expected an installation of Triton")
    return program


def _installed(home: Path, python: str | None) -> Kit:
    """Return the kit of an installation that is not ours."""
    program = _program(home)
    backend = home / "backends" / "python"
    stub = backend / STUB
    if not stub.exists():
        raise ConfigError(
            f"{stub}: no such file; expected Triton's Python backend, which gepipe needs"
        )
    version = stub_version(stub)
    try:
        told = (home / "TRITON_VERSION").read_text().strip()
    except OSError:
        told = ""
    if python is None or python in interpreter.SUPPORTED:
        made = environment.existing(python or version)
        path, its = made.python, made.interpreter.version
        libraries: tuple[Path, ...] = (made.libraries,)
    else:
        found = interpreter.find(python)
        path, its, libraries = found.path, found.version, _folders(found)
    if its != version:
        raise ConfigError(f"{path}: Python {its}; expected {version}, for which {stub} is built")
    return Kit(program, told, backend, stub, path, version, (home / "lib", *libraries))


def stub_version(stub: Path) -> str:
    """Return the version of Python that a stub is built for.

    Raises:
        ConfigError: It names none.
    """
    found = _LINKED.search(stub.read_bytes())
    if found is None:
        raise ConfigError(f"{stub}: it names no libpython; expected a stub of Triton")
    return found.group(1).decode()
