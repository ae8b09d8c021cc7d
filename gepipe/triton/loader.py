"""Loads and unloads models from a thread, one after another, because a load may take any time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal

from typing_extensions import Self

from gepipe.triton.bell import Bell
from gepipe.triton.control import Control, ControlError
from gepipe.triton.processes import children_of, state_of

_PAUSE_S: Final = 0.05

Kind = Literal["load", "restart", "unload"]


@dataclass(frozen=True)
class Task:
    """Something to do with a model.

    Attributes:
        kind: `load` brings a new version in place of the old one, `restart` unloads it first.
        model: Its name.
        steps: What it runs, if it is an ensemble: if it does not load, they tell why.
        changed: Those of its steps that have changed too. The server loads them with the
            ensemble, but is silent if one does not load and its old version serves on.
    """

    kind: Kind
    model: str
    steps: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What has become of a task.

    Attributes:
        task: The task.
        faults: Model to why it did not load; empty if all went well.
    """

    task: Task
    faults: dict[str, str] = field(default_factory=dict)


class Loader:
    """A thread that does tasks in order.

    Args:
        control: Of the server. A load that hangs comes back when the server ends.
        pid: Of the server.
        bell: Rung after every task.
    """

    def __init__(self, control: Control, pid: int, bell: Bell) -> None:
        self._control = control
        self._pid = pid
        self._bell = bell
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def add(self, tasks: Sequence[Task]) -> None:
        """Have tasks done after those that there are."""
        for task in tasks:
            self._tasks.put(task)

    def outcomes(self) -> list[Outcome]:
        """Return what has been done since the last call, but for what the server's end cut off."""
        found: list[Outcome] = []
        while not self._outcomes.empty():
            found.append(self._outcomes.get())
        return found

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            faults = self._do(task)
            if faults and self._has_ended():
                continue  # no fault of the model's, and whoever looks at the server finds it
            self._outcomes.put(Outcome(task, faults))
            self._bell.ring()

    def _has_ended(self) -> bool:
        """Whether the server has; calls are cut off a moment before it is seen."""
        pause = threading.Event()
        while state_of(self._pid) not in "ZX":
            if self._control.is_live():
                return False
            pause.wait(_PAUSE_S)
        return True

    def _do(self, task: Task) -> dict[str, str]:
        before = self._stubs()
        try:
            if task.kind in ("unload", "restart"):
                self._control.unload(task.model)
            if task.kind != "unload":
                self._control.load(task.model)
        except ControlError as error:
            return self._faults_of(task.steps) | {task.model: str(error)}
        new = self._stubs() - before
        # One that has new stubs has come with the ensemble, and need not come twice.
        return self._faults_of(
            step for step in task.changed if not any(i.startswith(f"{step}_") for i, _ in new)
        )

    def _stubs(self) -> set[tuple[str, int]]:
        """Return instance and pid of every stub."""
        children = children_of(self._pid)
        return {(child.command[-2], child.pid) for child in children if len(child.command) > 1}

    def _faults_of(self, models: Iterable[str]) -> dict[str, str]:
        """Load models; return why they do not load."""
        faults: dict[str, str] = {}
        for model in models:
            try:
                self._control.load(model)
            except ControlError as error:
                faults[model] = str(error)
        return faults

    def close(self) -> None:
        """End the thread; the server must have ended, or nothing be loading."""
        with suppress(queue.Empty):
            while True:
                self._tasks.get_nowait()
        self._tasks.put(None)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
