"""What this process may use of the machine: processors and memory, containers included."""

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
    v1 = cgroup / "cpu"
    quota, period = _read(v1 / "cpu.cfs_quota_us"), _read(v1 / "cpu.cfs_period_us")
    if quota and period and int(quota) > 0:
        quotas.append(int(quota) / int(period))
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
            # Cached files count as used, but the kernel drops them when memory is wanted.
            cached = sum(
                int(line.split()[1])
                for line in _read(folder / "memory.stat").splitlines()
                if line.startswith(("inactive_file ", "active_file "))
            )
            available = min(available, int(limit) - int(used) + cached)
    v1 = cgroup / "memory"
    limit, used = _read(v1 / "memory.limit_in_bytes"), _read(v1 / "memory.usage_in_bytes")
    if limit and used:
        available = min(available, int(limit) - int(used))
    return int(available) if available < math.inf else 2**62


def _cgroup_folders(cgroup: Path) -> list[Path]:
    """Return this process's cgroup and its ancestors (version 2); in a container just the root."""
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        if line.startswith("0::"):
            folder = cgroup / line[3:].lstrip("/")
            if folder.is_dir():
                steps = len(folder.relative_to(cgroup).parts)
                return [folder, *list(folder.parents)[:steps]]
    return [cgroup]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
