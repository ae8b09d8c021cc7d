"""Loads and unloads models from a thread, one after another, because a load may take any time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal

from typing_extensions import Self

from gepipe.triton.bell import Bell
from gepipe.triton.control import Control, ControlError

Kind = Literal["load", "restart", "unload"]


@dataclass(frozen=True)
class Task:
    """Something to do with a model.

    Attributes:
        kind: `load` brings a new version in place of the old one, `restart` unloads it first.
        model: Its name.
        steps: What it runs, if it is an ensemble: if it does not load, they tell why.
    """

    kind: Kind
    model: str
    steps: tuple[str, ...] = ()


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
        bell: Rung after every task.
    """

    def __init__(self, control: Control, bell: Bell) -> None:
        self._control = control
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
        """Return what has been done since the last call."""
        found: list[Outcome] = []
        while not self._outcomes.empty():
            found.append(self._outcomes.get())
        return found

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._outcomes.put(Outcome(task, self._do(task)))
            self._bell.ring()

    def _do(self, task: Task) -> dict[str, str]:
        try:
            if task.kind in ("unload", "restart"):
                self._control.unload(task.model)
            if task.kind != "unload":
                self._control.load(task.model)
        except ControlError as error:
            faults: dict[str, str] = {}
            for step in task.steps:
                try:
                    self._control.load(step)
                except ControlError as reason:
                    faults[step] = str(reason)
            return faults | {task.model: str(error)}
        return {}

    def close(self) -> None:
        """End the thread; the server must have ended, or nothing be loading."""
        with suppress(queue.Empty):
            while True:
                self._tasks.get_nowait()
        self._tasks.put(None)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
