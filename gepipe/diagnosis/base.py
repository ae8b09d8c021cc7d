"""What every run needs: Python, packages, processors, memory, plugins."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.metadata import version
from typing import Final, get_args

from gepipe import machine, plugins
from gepipe.diagnosis.finding import Finding, Host, sized
from gepipe.errors import PluginError

_PACKAGES: Final = ("numpy", "opencv-python-headless", "onnxruntime", "pillow", "pydantic")
#: What only some pipelines need, by the extra that brings it.
_EXTRAS: Final = {
    "video": ("av", "videos"),
    "track": ("supervision", "track"),
    "text": ("tokenizers", "texts"),
    "triton": ("tritonclient", "a Triton server"),
}
_LITTLE_BYTES: Final = 1 << 30
_FEW_PROCESSES: Final = 128


def look_at_packages(host: Host) -> Iterator[Finding]:
    """Yield gepipe, Python and the packages that a run needs."""
    yield Finding("ok", "gepipe", version("gepipe"))
    yield Finding("ok", "python", f"{platform.python_version()} on {host.machine}")
    for package in _PACKAGES:
        yield _package(host, package)
    yield _arrow(host)
    for extra, (package, what) in _EXTRAS.items():
        found = host.package_version(package)
        yield Finding("ok", package, found or _unneeded(what, extra))


def _package(host: Host, package: str) -> Finding:
    found = host.package_version(package)
    if found is None and package == "opencv-python-headless":
        others = ("opencv-python", "opencv-contrib-python-headless", "opencv-contrib-python")
        named = (f"{v} ({other})" for other in others if (v := host.package_version(other)))
        found = next(named, None)
    if found is None:
        return Finding("error", package, f"is missing: pip install {package}")
    return Finding("ok", package, found)


def _arrow(host: Host) -> Finding:
    arrow, numpy = host.package_version("pyarrow"), host.package_version("numpy") or ""
    if arrow is None:
        return Finding("ok", "pyarrow", _unneeded("Parquet", "parquet"))
    if int(arrow.split(".")[0]) >= 26 and numpy.startswith("1."):
        text = f"{arrow} breaks with numpy {numpy}: pip install 'pyarrow<26'"
        return Finding("error", "pyarrow", text)
    return Finding("ok", "pyarrow", arrow)


def _unneeded(what: str, extra: str) -> str:
    return f"not installed; only needed for {what}: pip install 'gepipe[{extra}]'"


def look_at_machine(host: Host) -> Iterator[Finding]:
    """Yield processors, memory and the limits of the container."""
    cgroup = host.path("/sys/fs/cgroup")
    usable, affinity = machine.cpu_count(cgroup), len(os.sched_getaffinity(0))
    text = f"{usable} to use"
    if affinity < (all_ := os.cpu_count() or 1):
        text += f"; affinity allows {affinity} of {all_}"
    if usable < affinity:
        text += f"; the cgroup's quota allows {usable} of {affinity}"
    yield Finding("ok", "processors", text)
    available = machine.available_memory(cgroup, host.path("/proc/meminfo"))
    limit = _number(host, "memory.max") or _number(host, "memory/memory.limit_in_bytes")
    text = f"{sized(available)} available"
    if limit is not None and limit < 2**60:
        text += f"; the cgroup's limit is {sized(limit)}, shared memory of slots counts into it"
    if available < _LITTLE_BYTES:
        text += "; that is little: raise the container's limit, or use a small batch_size"
        yield Finding("warning", "memory", text)
    else:
        yield Finding("ok", "memory", text)
    yield Finding("ok", "shared memory", f"nameless: no need of /dev/shm{_shm(host)}")
    processes = _number(host, "pids.max") or _number(host, "pids/pids.max")
    if processes is not None and processes < _FEW_PROCESSES:
        text = f"the cgroup allows {processes}; CANN starts many threads: raise --pids-limit"
        yield Finding("warning", "processes", text)


def _number(host: Host, name: str) -> int | None:
    text = host.read(f"/sys/fs/cgroup/{name}").strip()
    return int(text) if text.isdigit() else None


def _shm(host: Host) -> str:
    try:
        found = os.statvfs(host.path("/dev/shm"))  # noqa: S108 - only its size is asked for
    except OSError:
        return ""
    return f" ({sized(found.f_frsize * found.f_blocks)} here)"


def look_at_plugins() -> Iterator[Finding]:
    """Yield the plugins of each kind, and those that do not import."""
    kind: plugins.Kind
    for kind in get_args(plugins.Kind):
        broken = []
        try:
            names = plugins.names(kind)
        except PluginError as error:
            yield Finding("error", f"plugins: {kind}", str(error))
            continue
        for name in names:
            try:
                plugins.load(kind, name)
            except PluginError as error:
                broken.append(name)
                yield Finding("error", f"plugins: {kind}", str(error))
        good = [name for name in names if name not in broken]
        yield Finding("ok", f"plugins: {kind}", ", ".join(good) or "none")
