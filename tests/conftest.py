"""Fails any test that leaves something behind: descriptors, threads, processes, shared memory."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # tests that import it by themselves
_ROOT = str(Path(__file__).parent.parent)
if _ROOT not in sys.path:  # workers import stage bodies as `tests.support`
    sys.path.insert(0, _ROOT)

from tests.support import children_of, wait_until  # noqa: E402 - needs the path above

# How long an example takes, or finding one, says something of the machine only.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have tests that share a fixture of their file run in one process."""
    if config.getoption("dist") != "load":
        return None
    from tests.scheduling import SharedFixtures

    return SharedFixtures(config, log)


def _servers() -> tuple[set[int], set[int]]:
    """Return pids and descriptors of the fork server and of the resource trackers."""
    pids: set[int] = set()
    fds: set[int] = set()
    for package in ("multiprocess", "multiprocessing"):
        forkserver = sys.modules.get(f"{package}.forkserver")
        tracker = sys.modules.get(f"{package}.resource_tracker")
        if forkserver is not None:
            pids.add(forkserver._forkserver._forkserver_pid)
            fds.add(forkserver._forkserver._forkserver_alive_fd)
        if tracker is not None:
            pids.add(tracker._resource_tracker._pid)
            fds.add(tracker._resource_tracker._fd)
    return pids - {None}, fds - {None}


def _held() -> set[tuple[str, object]]:
    pids, fds = _servers()
    held: set[tuple[str, object]] = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the listing holds no descriptor
        if int(name) in fds:
            continue
        with suppress(OSError):
            held.add(("descriptor", (int(name), str(Path(f"/proc/self/fd/{name}").readlink()))))
    held |= {("thread", thread) for thread in threading.enumerate()}
    held |= {("process", pid) for pid in children_of(os.getpid()) - pids}
    for pid in pids:  # workers are children of the fork server
        held |= {("worker", child) for child in children_of(pid)}
    return held


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Compare what this process holds before and after each test."""
    before = _held()
    yield
    if not _held() - before:
        return
    gc.collect()
    wait_until(lambda: not _held() - before, else_raise=False)
    left = sorted(f"{kind} {what}" for kind, what in _held() - before)
    assert not left, f"the test left behind: {', '.join(left)}"


@pytest.fixture(scope="session", autouse=True)
def what_a_process_opens_once() -> None:
    """Open it before the first test, which would otherwise seem to leave it behind."""
    from gepipe.ops.codecs import _complaints

    _complaints()


@pytest.fixture(scope="session", autouse=True)
def fork_server_ends_with_the_session() -> Iterator[None]:
    yield
    if "gepipe.runtime.forkserver" in sys.modules:
        from gepipe.runtime.forkserver import stop_server

        stop_server()
