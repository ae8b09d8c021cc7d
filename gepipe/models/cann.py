"""Finds the installations of CANN on this machine, and the environment that its tools need."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Where installers put CANN, below the root: first those with a link to the newest version.
_PLACES: Final = (
    "usr/local/Ascend/ascend-toolkit/latest",
    "usr/local/Ascend/cann",
    "usr/local/Ascend/nnrt/latest",
    "usr/local/Ascend/ascend-toolkit/*",
    "usr/local/Ascend/cann-*",
    "usr/local/Ascend/nnrt/*",
)
#: Files that tell the version, and how the line begins.
_VERSION_FILES: Final = (
    "*-linux/ascend_toolkit_install.info",
    "*-linux/ascend_nnrt_install.info",
    "ascend_toolkit_install.info",
    "version.cfg",
    "runtime/version.info",
    "compiler/version.info",
    "toolkit/version.info",
    "version.info",
)
_VERSION: Final = re.compile(
    r"^(?:version|Version|toolkit_running_version|runtime_running_version)\s*=\s*"
    r"\[?[^\d\n]*?([0-9][0-9A-Za-z.]*)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Cann:
    """An installation of CANN.

    Attributes:
        home: Its folder, what ASCEND_HOME_PATH names.
        version: Such as `8.0.RC3`; empty where no file tells.
    """

    home: Path
    version: str

    @property
    def set_env(self) -> Path:
        """The script that sets the environment: beside the versions, or in the folder itself."""
        beside = self.home.parent / "set_env.sh"
        return beside if beside.is_file() else self.home / "set_env.sh"

    def __str__(self) -> str:
        return f"CANN {self.version or 'of unknown version'} in {self.home}"


def installs(environ: Mapping[str, str], root: Path = Path("/")) -> list[Cann]:
    """Return the installations, the one that the environment names first.

    Links to the same folder count once.

    Args:
        environ: The environment.
        root: Where the file system begins.
    """
    found: list[Cann] = []
    seen: set[Path] = set()
    for home in _candidates(environ, root):
        real = real_path(home)
        if real not in seen and _is_install(real):
            seen.add(real)
            found.append(Cann(home, version_of(home)))
    return found


def real_path(path: Path) -> Path:
    """Return a path without links; one that leads in a circle is left as it is.

    Half-removed installations have such, and `Path.resolve` raises there before Python 3.13.
    """
    return Path(os.path.realpath(path))


def _candidates(environ: Mapping[str, str], root: Path) -> Iterator[Path]:
    for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        if named := environ.get(name):
            yield root / named.lstrip("/") if root != Path("/") else Path(named)
    for pattern in _PLACES:
        yield from sorted(root.glob(pattern))


def _is_install(home: Path) -> bool:
    return any(
        os.path.exists(home / part)  # noqa: PTH110 - false where it cannot be told, too
        for part in ("bin/atc", "compiler/bin/atc", "opp", "runtime", "lib64")
    )


def version_of(home: Path) -> str:
    """Return the version of an installation; empty where no file tells."""
    for pattern in _VERSION_FILES:
        for file in sorted(home.glob(pattern)):
            if version := version_in(file):
                return version
    return ""


def version_in(file: Path) -> str:
    """Return the version that a file of CANN, driver or firmware tells; empty if none."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = _VERSION.search(text)
    return found[1].rstrip(".") if found else ""


def environment(cann: Cann, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that the tools of an installation need, as `set_env.sh` makes it.

    Nothing is changed where it is set for this installation already.

    Args:
        cann: The installation.
        environ: The environment so far.
    """
    result = dict(environ)
    home = cann.home
    if result.get("ASCEND_HOME_PATH") == str(home) and "ASCEND_OPP_PATH" in result:
        return result
    tbe = "opp/built-in/op_impl/ai_core/tbe"
    before = {
        "PATH": [home / "bin", home / "compiler/bin", home / "compiler/ccec_compiler/bin"],
        "LD_LIBRARY_PATH": [
            home / "lib64",
            home / "lib64/plugin/opskernel",
            home / "lib64/plugin/nnengine",
            home / f"{tbe}/op_tiling/lib/linux/{platform.machine()}",
            home / f"{tbe}/op_tiling",
        ],
        "PYTHONPATH": [home / "python/site-packages", home / tbe],
    }
    for name, folders in before.items():
        own = [str(folder) for folder in folders if folder.is_dir() or name != "PATH"]
        result[name] = ":".join([*own, *filter(None, [result.get(name)])])
    for name, value in (
        ("ASCEND_HOME_PATH", home),
        ("ASCEND_TOOLKIT_HOME", home),
        ("ASCEND_AICPU_PATH", home),
        ("ASCEND_OPP_PATH", home / "opp"),
        ("TOOLCHAIN_HOME", home / "toolkit"),
    ):
        result[name] = str(value)
    return result
