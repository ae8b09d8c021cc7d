"""CANN on this machine: which, whether its environment is set, and whether this Python fits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from gepipe.diagnosis.finding import Finding, Host
from gepipe.models.cann import Cann, installs, real_path

_SET_ENV: Final = "/usr/local/Ascend/ascend-toolkit/set_env.sh"
#: Newest Python that a CANN release is known to be made for, by (major, minor) of the release.
_NEWEST_PYTHON: Final = (((7, 0), (3, 9)), ((8, 0), (3, 10)), ((8, 1), (3, 11)))
_SERIES: Final = re.compile(r"Ascend(\d{3}[A-Z]?)")
_KERNELS: Final = "built-in/op_impl/ai_core/tbe/kernel"


def look_at_cann(host: Host) -> Iterator[Finding]:
    """Yield what is found of CANN and its environment."""
    found = installs(host.environ, host.root)
    home = host.environ.get("ASCEND_HOME_PATH") or host.environ.get("ASCEND_TOOLKIT_HOME")
    if not found:
        text = "not installed: install the toolkit (or nnrt, which only runs models), or set"
        yield Finding("warning", "cann", f"{text} ASCEND_HOME_PATH to where it is")
        return
    listed = "; ".join(map(str, found))
    if len(found) > 1:
        text = f"there are {len(found)}: {listed}; "
        used = f"the environment is that of {home}" if home else "no environment is set"
        text += (
            f"{used}; mixing two is a common cause of 500001: keep one, or source one set_env.sh"
        )
        yield Finding("warning", "cann", text)
    else:
        yield Finding("ok", "cann", listed)
    if home is None:
        text = f"not set: source {_shown(host, found[0].set_env)}, in services and IDEs as well"
        yield Finding("warning", "environment", text)
    else:
        yield _mixed(host, found, home) or Finding("ok", "environment", f"set for {home}")
    yield from _stubs(host)
    yield _operators(host, found[0])


def _shown(host: Host, path: Path) -> str:
    if not path.is_file():
        return _SET_ENV
    return str(path) if host.root == Path("/") else f"/{path.relative_to(host.root)}"


def _mixed(host: Host, found: Sequence[Cann], home: str) -> Finding | None:
    """Say that the search paths name another installation than ASCEND_HOME_PATH."""
    used = real_path(found[0].home)
    for name in ("LD_LIBRARY_PATH", "PYTHONPATH", "PATH", "ASCEND_OPP_PATH"):
        for folder in filter(None, host.environ.get(name, "").split(":")):
            real = real_path(host.path(folder))
            for other in found[1:]:
                theirs = real_path(other.home)
                if real.is_relative_to(theirs) and not real.is_relative_to(used):
                    text = (
                        f"{name} names {folder}, of another CANN than ASCEND_HOME_PATH={home}; "
                        "start a new shell and source one set_env.sh only"
                    )
                    return Finding("warning", "environment", text)
    return None


def _stubs(host: Host) -> Iterator[Finding]:
    for folder in host.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if "devlib" in folder.split("/") or "stub" in folder.split("/"):
            text = (
                f"LD_LIBRARY_PATH names {folder}: libraries for linking only, which fail at run "
                "time (100039); take it out"
            )
            yield Finding("warning", "environment", text)
            return


def _operators(host: Host, cann: Cann) -> Finding:
    named = host.environ.get("ASCEND_OPP_PATH")
    folder = host.path(named) if named else cann.home / "opp"
    if not folder.is_dir():
        text = f"{folder} is missing; models do not load (148049): set ASCEND_OPP_PATH, or install"
        return Finding("error" if named else "warning", "operators", f"{text} the toolkit or nnrt")
    return Finding("ok", "operators", str(folder))


def look_at_kernels(host: Host, soc: str) -> Iterator[Finding]:
    """Yield whether there are kernels for the chip, where CANN keeps them in folders of series."""
    found = installs(host.environ, host.root)
    series = _SERIES.match(soc)
    if not found or series is None or host.is_emulated:
        return
    named = host.environ.get("ASCEND_OPP_PATH")
    folder = (host.path(named) if named else found[0].home / "opp") / _KERNELS
    try:
        there = sorted(path.name for path in folder.iterdir() if path.name.startswith("ascend"))
    except OSError:
        return
    wanted = f"ascend{series[1].lower()}"
    if any(name.startswith(wanted) for name in there):
        yield Finding("ok", "kernels", f"{', '.join(there)}")
    else:
        text = (
            f"there are none for {soc} ({folder} has {', '.join(there) or 'nothing'}); install the "
            f"kernels package of the same CANN version: Ascend-cann-kernels-{series[1].lower()}"
        )
        yield Finding("warning", "kernels", text)


def look_at_python(host: Host) -> Iterator[Finding]:
    """Yield whether Python and NumPy are those that CANN was made for, as far as is known."""
    found = installs(host.environ, host.root)
    release = re.match(r"(\d+)\.(\d+)", found[0].version) if found else None
    if release is None:
        return
    number = int(release[1]), int(release[2])
    for before, newest in _NEWEST_PYTHON:
        if number < before:
            if host.python > newest:
                text = (
                    f"the manual of CANN {found[0].version} names Python up to {_dotted(newest)}, "
                    f"this is {_dotted(host.python)}: use an older one if acl does not import"
                )
                yield Finding("warning", "python and cann", text)
            break
    numpy = host.package_version("numpy") or ""
    if number < (9, 0) and not numpy.startswith(("0.", "1.")) and numpy:
        text = (
            f"numpy {numpy}: parts of older CANN need numpy<2 (atc: EC0010, np.float_); running "
            "models does not"
        )
        yield Finding("warning", "numpy and cann", text)


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def look_at_visible(host: Host, cards: int) -> Iterator[Finding]:
    """Yield which cards ASCEND_RT_VISIBLE_DEVICES leaves."""
    listed = host.environ.get("ASCEND_RT_VISIBLE_DEVICES")
    if listed is None:
        return
    last = -1
    count = 0
    for token in listed.split(","):
        if not re.fullmatch(r"\d{1,4}", token) or not last < int(token) < cards:
            break
        last, count = int(token), count + 1
    text = f"ASCEND_RT_VISIBLE_DEVICES={listed} leaves {count} of {cards}"
    if count < len(listed.split(",")):
        text += (
            "; numbers must ascend, without blanks, and reading stops at the first that is wrong"
        )
        yield Finding("warning", "visible devices", text)
    else:
        yield Finding("ok", "visible devices", text)
