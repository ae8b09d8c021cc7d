"""Decides which models have lost a stub process, or hang, and when they are loaded again.

Performs nothing and reads no clock: what is seen goes in, what is to be done comes out.

    children of the server ──see──┐
    counts of requests ────count──┼─▶ Watchdog ─▶ Restart, Resume, Kill, GiveUp
    outcome of a restart ─────────┘
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gepipe.triton.deaths import Deaths
from gepipe.triton.processes import Process

_STUB: Final = "triton_python_backend_stub"
_CONFIRM_S: Final = 0.2  # the server collects a stub that ended as it should within this time
_OLD_STUBS_STAY_S: Final = 30.0
#: The server gives up a stub that does not stir for a second, and takes back the memory that both
#: share; a stub says every 0.3 s that it is alive.
_LONGEST_STOP_S: Final = 0.5


@dataclass(frozen=True)
class Restart:
    """Unload the model and load it again.

    Attributes:
        model: Which.
        instance: The instance that died; empty if it is the loading that failed.
        delay_s: When, from now.
    """

    model: str
    instance: str
    delay_s: float


@dataclass(frozen=True)
class Resume:
    """Let a stub process go on that somebody has just stopped: it answers what it has.

    Attributes:
        pid: Which.
        model: Its model.
    """

    pid: int
    model: str


@dataclass(frozen=True)
class Kill:
    """End a stub process.

    Attributes:
        pid: Which.
        model: Its model.
        reason: Why; empty for one that nobody needs any more.
    """

    pid: int
    model: str
    reason: str


@dataclass(frozen=True)
class GiveUp:
    """Leave a model down until its files change.

    Attributes:
        model: Which.
        deaths: How often it died within ten minutes.
    """

    model: str
    deaths: int


Action = Restart | Resume | Kill | GiveUp


@dataclass(frozen=True)
class Load:
    """How far a model is with its requests.

    Attributes:
        done: How many it has answered, with or without success.
        waiting: How many wait for an instance.
    """

    done: int
    waiting: int


@dataclass
class _Stub:
    model: str
    instance: str
    ran_at: float  # when it was last seen, and not stopped
    dead_since: float = math.inf
    leave_by: float = math.inf


@dataclass
class _Record:
    deaths: Deaths = field(default_factory=Deaths)
    done: int = -1
    since: float = 0.0
    is_down: bool = False  # being loaded again, or given up: its stubs are no news


class Watchdog:
    """Watches the stubs of one server.

    Args:
        hang_timeout_s: A model that has waiting requests and answers none for this long hangs.
    """

    def __init__(self, hang_timeout_s: float = math.inf) -> None:
        self.hang_timeout_s = hang_timeout_s
        self._stubs: dict[int, _Stub] = {}
        self._records: dict[str, _Record] = {}

    def see(self, now: float, children: Iterable[Process], models: Iterable[str]) -> list[Action]:
        """Take in the server's children.

        Args:
            now: The time, in seconds.
            children: All of them.
            models: Names of the models that should be served.
        """
        actions: list[Action] = []
        by_pid = {child.pid: child for child in children}
        self._stubs = {pid: stub for pid, stub in self._stubs.items() if pid in by_pid}
        for pid, child in by_pid.items():
            if pid not in self._stubs:
                found = _stub_of(now, child, models)
                if found is None:
                    continue
                self._stubs[pid] = found
            actions += self._judge(now, child, self._stubs[pid])
        return actions

    def _judge(self, now: float, child: Process, stub: _Stub) -> list[Action]:
        is_old = stub.leave_by != math.inf
        if child.state in "ZX":
            stub.dead_since = min(stub.dead_since, now)
            # It stays a zombie for as long as the server lives.
            if is_old or self._record(stub.model).is_down or now - stub.dead_since < _CONFIRM_S:
                return []
            return [self._after_death(now, stub.model, stub.instance)]
        if now >= stub.leave_by:
            return [Kill(child.pid, stub.model, "")]
        if child.state != "T":
            stub.ran_at = now
            return []
        if now - stub.ran_at <= _LONGEST_STOP_S:
            return [Resume(child.pid, stub.model)]
        # It would go on in memory that may be in use again, which has ended whole servers.
        return [Kill(child.pid, stub.model, f"stopped for up to {now - stub.ran_at:.1f} s")]

    def failed(self, now: float, model: str) -> Action:
        """Note that a model could not be loaded again."""
        return self._after_death(now, model, "")

    def _after_death(self, now: float, model: str, instance: str) -> Action:
        record = self._record(model)
        record.is_down = True
        delay_s = record.deaths.add(now)
        if delay_s is None:
            return GiveUp(model, len(record.deaths))
        return Restart(model, instance, delay_s)

    def count(self, now: float, loads: Mapping[str, Load]) -> list[Action]:
        """Take in how far the models are with their requests."""
        actions: list[Action] = []
        for model, load in loads.items():
            record = self._record(model)
            if load.done != record.done or not load.waiting or record.is_down:
                record.done, record.since = load.done, now
            elif now - record.since >= self.hang_timeout_s:
                reason = f"{load.waiting} waiting, none answered for {now - record.since:.0f} s"
                actions += [
                    Kill(pid, model, reason)
                    for pid, stub in self._stubs.items()
                    if stub.model == model and stub.leave_by == math.inf
                ]
                record.since = now
        return actions

    def replaced(self, now: float, model: str) -> None:
        """Note that a model is unloaded, and that all of its stubs are of the past.

        A dead instance keeps the server from ending its siblings, which are ended later.
        """
        for stub in self._stubs.values():
            if stub.model == model:
                stub.leave_by = min(stub.leave_by, now + _OLD_STUBS_STAY_S)

    def serves(self, model: str) -> None:
        """Note that a model is loaded again."""
        self._record(model).is_down = False

    def forget(self, model: str) -> None:
        """Note that a model has changed: what its old version did is no reason any more."""
        self._records.pop(model, None)

    def _record(self, model: str) -> _Record:
        return self._records.setdefault(model, _Record())


def _stub_of(now: float, child: Process, models: Iterable[str]) -> _Stub | None:
    """Return what a child is, from its command, whose last words are instance and kind."""
    if len(child.command) < 9 or not child.command[0].endswith(_STUB):
        return None
    instance = child.command[-2]
    # Its name is `<model>_<group>` or `<model>_<group>_<number>`, and a model may end so itself.
    fitting = [name for name in models if instance.startswith(f"{name}_") or instance == name]
    return _Stub(max(fitting, key=len), instance, now) if fitting else None
