"""Checks made before the server starts, because it says nothing itself, or waits for ever."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from gepipe.errors import ConfigError
from gepipe.triton import interpreter
from gepipe.triton.environment import digest, digest_of
from gepipe.triton.kit import Kit

_LONGEST_S: Final = 60
_LEAST_SHM: Final = 8 << 20
_SMALL_SHM: Final = 128 << 20
_STUB_RUNS: Final = 1  # what it ends with when it is started without arguments
_IMPORTS: Final = """
import json, sys
report = {"python": "%d.%d" % sys.version_info[:2]}
for name in ("numpy", "gepipe"):
    try:
        __import__(name)
    except Exception as error:
        report[name] = "%s: %s" % (type(error).__name__, error)
if "numpy" not in report:
    report["version"] = sys.modules["numpy"].__version__
if "gepipe" not in report:
    from importlib.metadata import PackageNotFoundError, distribution
    try:
        own = distribution("gepipe")
        report["own"], report["record"] = own.version, own.read_text("RECORD") or ""
    except PackageNotFoundError:
        report["own"], report["record"] = "of an unknown version", ""
print(json.dumps(report))
"""


def check_stub(kit: Kit) -> None:
    """Start the stub as the server would.

    Raises:
        ConfigError: It cannot start; the server would wait for it for ever.
    """
    try:
        done = subprocess.run(  # noqa: S603 - a program of Triton's
            [kit.stub],
            env=kit.environ(),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LONGEST_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        code, said = done.returncode, done.stderr.strip()
    except (OSError, subprocess.SubprocessError) as error:
        code, said = -1, str(error)
    if code != _STUB_RUNS:
        reason = said.splitlines()[-1] if said else f"status {code}"
        raise ConfigError(
            f"{kit.stub}: Triton's stub does not start: {reason}; expected libpython"
            f"{kit.python_version}.so.1.0 and the libraries beside the server; on Debian and "
            f"Ubuntu: apt-get install libpython{kit.python_version}; or choose another Python: "
            "gepipe triton install --python"
        )


def check_imports(kit: Kit) -> list[str]:
    """Import in the stub's Python, isolated as the stub is, what every model imports.

    Returns:
        What may surprise, in words.

    Raises:
        ConfigError: Something is missing there, or NumPy is too new for the stub.
    """
    try:
        done = subprocess.run(  # noqa: S603 - the Python of the kit
            [kit.python, "-I", "-c", _IMPORTS],
            env=kit.environ(),
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        report = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{kit.python}: not a Python that runs: {error}") from error
    hint = "to make an environment that has it: gepipe triton install"
    if kit.python_version != interpreter.own():
        hint += f" --python {kit.python_version}"
    if report["python"] != kit.python_version:
        raise ConfigError(
            f"{kit.python}: Python {report['python']}; expected {kit.python_version}, for which "
            f"{kit.stub} is built; {hint}"
        )
    for name in ("numpy", "gepipe"):
        if name in report:
            raise ConfigError(
                f"{kit.python}: a model could not import {name}: {report[name]}; stubs see only "
                f"what is installed in their own environment; {hint}"
            )
    if int(report["version"].split(".")[0]) >= 2:
        raise ConfigError(
            f"{kit.python}: NumPy {report['version']}; expected one below 2, or stubs crash on "
            f"texts and images; {hint}"
        )
    try:
        own = distribution("gepipe")
    except PackageNotFoundError:  # run from a folder
        return []
    if digest(report["own"], report["record"]) == digest_of(own):
        return []
    which = f"gepipe {report['own']}, but this is {own.version}"
    if report["own"] == own.version:
        which = f"another copy of gepipe {own.version} than this one"
    return [f"{kit.python}: {which}; {hint}"]


def check_shared_memory(folder: Path = Path("/dev/shm")) -> list[str]:  # noqa: S108 - Triton's
    """Look at the place where each instance of a model has a region of at least 1 MiB.

    Returns:
        What may be too little, in words.

    Raises:
        ConfigError: There is none, or it is full.
    """
    try:
        facts = os.statvfs(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"{folder}: {os.strerror(error.errno or 0).lower()}; expected shared memory that can "
            "be written, through which Triton hands tensors to models"
        ) from error
    free = facts.f_bavail * facts.f_frsize
    if free < _LEAST_SHM:
        raise ConfigError(
            f"{folder}: {free >> 20} MiB are free; expected 1.5 times what all instances hold, at "
            "least 1 MiB each; in a container: docker run --shm-size=1g"
        )
    if free < _SMALL_SHM:
        text = f"{folder}: only {free >> 20} MiB are free; all instances together need 1.5 times "
        return [text + "what they hold; in a container: docker run --shm-size=1g"]
    return []
