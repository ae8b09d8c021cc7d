from __future__ import annotations

import os

import pytest

from gepipe import machine


@pytest.fixture
def affinity(monkeypatch):
    def set_to(count: int) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(count)))

    return set_to


@pytest.fixture
def own_group(monkeypatch):
    """Say which cgroup this process is in."""
    read = machine._read

    def say(name: str) -> None:
        monkeypatch.setattr(
            machine,
            "_read",
            lambda path: f"0::{name}" if str(path) == "/proc/self/cgroup" else read(path),
        )

    return say


def test_quota_of_one_and_a_half_on_two_processors_is_two(tmp_path, affinity) -> None:
    affinity(2)
    (tmp_path / "cpu.max").write_text("150000 100000\n")

    assert machine.cpu_count(tmp_path) == 2


@pytest.mark.parametrize(
    ("text", "processors", "expected"),
    [
        ("max 100000", 8, 8),
        ("100000 100000", 64, 1),
        ("20000 100000", 64, 1),
        ("250000 100000", 64, 3),
        ("6400000 100000", 4, 4),
        ("", 3, 3),
        ("nonsense", 3, 3),
    ],
)
def test_smaller_of_affinity_and_quota_counts(
    tmp_path, affinity, text, processors, expected
) -> None:
    affinity(processors)
    (tmp_path / "cpu.max").write_text(text)

    assert machine.cpu_count(tmp_path) == expected


def test_quota_of_an_ancestor_counts(tmp_path, affinity, own_group) -> None:
    affinity(16)
    own_group("/box/job")
    (tmp_path / "box" / "job").mkdir(parents=True)
    (tmp_path / "box" / "cpu.max").write_text("200000 100000")
    (tmp_path / "box" / "job" / "cpu.max").write_text("max 100000")

    assert machine.cpu_count(tmp_path) == 2


def test_quota_of_the_first_version_counts(tmp_path, affinity) -> None:
    affinity(16)
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("300000")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")

    assert machine.cpu_count(tmp_path) == 3

    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1")
    assert machine.cpu_count(tmp_path) == 16


def test_memory_is_what_the_group_leaves_and_caches_do_not_count(tmp_path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\n")
    assert machine.available_memory(tmp_path, meminfo) == 8_000_000 * 1024

    (tmp_path / "memory.max").write_text("1000000")
    (tmp_path / "memory.current").write_text("900000")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 300000\nactive_file 50000\n")
    assert machine.available_memory(tmp_path, meminfo) == 450_000

    (tmp_path / "memory.max").write_text("max")
    assert machine.available_memory(tmp_path, meminfo) == 8_000_000 * 1024


def test_real_machine_has_a_processor_and_memory() -> None:
    assert 1 <= machine.cpu_count() <= len(os.sched_getaffinity(0))
    assert machine.available_memory() > 1 << 20


@pytest.fixture
def first_version(monkeypatch, tmp_path):
    """A machine with the first version's trees; returns this process's groups there."""
    lines = "9:memory:/box/job\n4:cpu,cpuacct:/box/job\n1:name=systemd:/box/job\n0::/\n"
    read = machine._read
    monkeypatch.setattr(
        machine, "_read", lambda path: lines if str(path) == "/proc/self/cgroup" else read(path)
    )

    def make(cpu: str = "cpu") -> tuple:
        for name in (cpu, "memory"):
            (tmp_path / name / "box" / "job").mkdir(parents=True)
        return tmp_path / cpu / "box" / "job", tmp_path / "memory" / "box" / "job"

    return make


@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
@pytest.mark.parametrize("step", [0, 1, 2])
def test_quota_of_any_ancestor_counts_in_the_first_version(
    tmp_path, affinity, first_version, mount, step
) -> None:
    affinity(16)
    group, _ = first_version(mount)
    for folder in (group, group.parent, group.parent.parent):
        (folder / "cpu.cfs_quota_us").write_text("-1")
        (folder / "cpu.cfs_period_us").write_text("100000")
    chosen = [group, group.parent, group.parent.parent][step]
    (chosen / "cpu.cfs_quota_us").write_text("300000")

    assert machine.cpu_count(tmp_path) == 3


@pytest.mark.parametrize("step", [0, 1, 2])
def test_memory_of_any_ancestor_counts_in_the_first_version(tmp_path, first_version, step) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemAvailable: 8000000 kB\n")
    _, group = first_version()
    for folder in (group, group.parent, group.parent.parent):
        (folder / "memory.limit_in_bytes").write_text(str(2**63 - 4096))
        (folder / "memory.usage_in_bytes").write_text("900000")
    chosen = [group, group.parent, group.parent.parent][step]
    (chosen / "memory.limit_in_bytes").write_text("1000000")
    (chosen / "memory.stat").write_text(
        "inactive_file 7\ntotal_inactive_file 300000\ntotal_active_file 50000\n"
    )

    assert machine.available_memory(tmp_path, meminfo) == 450_000


def test_a_group_outside_the_container_is_not_looked_for(tmp_path, affinity, own_group) -> None:
    affinity(16)
    own_group("/../../elsewhere")
    (tmp_path / "cpu.max").write_text("200000 100000")

    assert machine.cpu_count(tmp_path) == 2
