"""What this process may use of the machine: processors, memory (containers included), cache."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

_CGROUP: Final = Path("/sys/fs/cgroup")


def cpu_count(cgroup: Path = _CGROUP) -> int:
    """Return how many processors this process may keep busy, at least 1.

    The smaller of its affinity mask and its cgroup's quota, rounded up: a quota of 1.5 processors
    is best used by two workers. `os.cpu_count()` would say what the host has.

    Args:
        cgroup: Where the cgroup file system is mounted.
    """
    count = len(os.sched_getaffinity(0))
    quota = _cpu_quota(cgroup)
    return max(1, min(count, math.ceil(quota))) if quota else count


def _cpu_quota(cgroup: Path) -> float | None:
    quotas: list[float] = []
    for folder in _cgroup_folders(cgroup):  # version 2: a quota of any ancestor counts
        fields = _read(folder / "cpu.max").split()
        if len(fields) == 2 and fields[0] != "max":
            quotas.append(int(fields[0]) / int(fields[1]))
    for folder in _cgroup_folders(cgroup, "cpu"):
        quota = _number(_read(folder / "cpu.cfs_quota_us"))
        period = _number(_read(folder / "cpu.cfs_period_us"))
        if quota and period and quota > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)


def available_memory(cgroup: Path = _CGROUP, meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return how many bytes this process may still allocate, by the kernel's and cgroup's word.

    Args:
        cgroup: Where the cgroup file system is mounted.
        meminfo: The kernel's account of the machine's memory.
    """
    available = math.inf
    for line in _read(meminfo).splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    for folder in _cgroup_folders(cgroup):
        limit, used = _read(folder / "memory.max"), _read(folder / "memory.current")
        if limit and used and limit != "max":
            cached = _cached(folder, "inactive_file", "active_file")
            available = min(available, int(limit) - int(used) + cached)
    for folder in _cgroup_folders(cgroup, "memory"):
        most = _number(_read(folder / "memory.limit_in_bytes"))
        taken = _number(_read(folder / "memory.usage_in_bytes"))
        if most is not None and taken is not None:
            cached = _cached(folder, "total_inactive_file", "total_active_file")
            available = min(available, most - taken + cached)
    return int(available) if available < math.inf else 2**62


def _cached(folder: Path, *names: str) -> int:
    """Return the bytes of cached files; they count as used, but give way when memory is wanted."""
    fields = (line.split() for line in _read(folder / "memory.stat").splitlines())
    return sum(int(field[1]) for field in fields if field[0] in names)


def _cgroup_folders(cgroup: Path, controller: str = "") -> list[Path]:
    """Return this process's cgroup and its ancestors; in a container perhaps just the root.

    Args:
        cgroup: Where the cgroup file system is mounted.
        controller: One of version 1, which has a tree for each; empty for version 2.
    """
    top = cgroup / controller
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, name = [*line.split(":", 2), "", ""][:3]
        if controller not in controllers.split(","):
            continue
        for root in dict.fromkeys((top, cgroup / controllers)):
            folder = root / name.lstrip("/")
            if ".." not in folder.parts and folder.is_dir():  # else one outside the container
                steps = len(folder.relative_to(root).parts)
                return [folder, *list(folder.parents)[:steps]]
    return [top]


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def cache_folder(kind: str) -> Path:
    """Return `$GEPIPE_CACHE/<kind>`, else the same under the user's cache folder."""
    if own := os.environ.get("GEPIPE_CACHE"):
        return Path(own) / kind
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gepipe" / kind
