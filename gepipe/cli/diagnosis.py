"""What `gepipe doctor` looks at."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

from gepipe import machine, plugins
from gepipe.cli.text import harmless, print_out, size
from gepipe.errors import ConfigError, PluginError

_PACKAGES: Final = ("numpy", "opencv-python-headless", "onnxruntime", "pillow", "pydantic")


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


def show_diagnosis(*, as_json: bool) -> int:
    """Look at everything, show it, and return the exit code."""
    findings = list(diagnose())
    bad = any(finding.state == "error" for finding in findings)
    if as_json:
        print_out(json.dumps({"ok": not bad, "findings": [f._asdict() for f in findings]}))
    else:
        width = max(len(finding.what) for finding in findings)
        for state, what, text in findings:
            print_out(harmless(f"{state.ljust(7)}  {what.ljust(width)}  {text}"))
    return ConfigError.exit_code if bad else 0


def diagnose() -> Iterator[Finding]:
    """Yield what is found, without loading any of the heavy libraries."""
    yield Finding("ok", "gepipe", version("gepipe"))
    yield Finding("ok", "python", f"{platform.python_version()} on {platform.machine()}")
    for package in _PACKAGES:
        yield _package(package)
    yield _arrow()
    yield _processors()
    yield Finding("ok", "memory", f"{size(machine.available_memory())} available")
    yield Finding("ok", "shared memory", "nameless: no need of /dev/shm")
    yield _npu()
    yield from _plugins()


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _package(package: str) -> Finding:
    found = _installed(package)
    if found is None and package == "opencv-python-headless":
        others = ("opencv-python", "opencv-contrib-python-headless", "opencv-contrib-python")
        found = next((f"{v} ({other})" for other in others if (v := _installed(other))), None)
    if found is None:
        return Finding("error", package, f"is missing: pip install {package}")
    return Finding("ok", package, found)


def _arrow() -> Finding:
    arrow, numpy = _installed("pyarrow"), _installed("numpy") or ""
    if arrow is None:
        text = "not installed; only needed for parquet: pip install 'gepipe[parquet]'"
        return Finding("ok", "pyarrow", text)
    if int(arrow.split(".")[0]) >= 26 and numpy.startswith("1."):
        text = f"{arrow} breaks with numpy {numpy}: pip install 'pyarrow<26'"
        return Finding("error", "pyarrow", text)
    return Finding("ok", "pyarrow", arrow)


def _processors() -> Finding:
    usable, affinity, host = (
        machine.cpu_count(),
        len(os.sched_getaffinity(0)),
        os.cpu_count() or 1,
    )
    text = f"{usable} to use"
    if affinity < host:
        text += f"; affinity allows {affinity} of {host}"
    if usable < affinity:
        text += f"; the cgroup's quota allows {usable} of {affinity}"
    return Finding("ok", "processors", text)


def _npu() -> Finding:
    if find_spec("acl") is None:
        text = "`acl` is not to be found: models run on the CPU"
        if Path("/usr/local/Ascend").is_dir():
            hint = "source /usr/local/Ascend/ascend-toolkit/set_env.sh"
            return Finding("warning", "npu", f"CANN is installed, but {text}; {hint}")
        return Finding("ok", "npu", text)
    return Finding("ok", "npu", "`acl` can be found")


def _plugins() -> Iterator[Finding]:
    kind: plugins.Kind
    for kind in get_args(plugins.Kind):
        broken = []
        try:
            names = plugins.names(kind)
        except PluginError as error:
            yield Finding("error", kind, str(error))
            continue
        for name in names:
            try:
                plugins.load(kind, name)
            except PluginError as error:
                broken.append(name)
                yield Finding("error", kind, str(error))
        good = [name for name in names if name not in broken]
        yield Finding("ok", kind, ", ".join(good) or "none")
