"""Keeps a server serving: brings dead models back, takes in new versions, tells how things are."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gepipe.errors import GepipeError, ModelLoadError
from gepipe.triton.control import ControlError
from gepipe.triton.health import Report
from gepipe.triton.loader import Kind, Loader, Outcome, Task
from gepipe.triton.processes import children_of, resumed
from gepipe.triton.reload import Change, Changes, ModelFolder, load_order, scan
from gepipe.triton.server import Server
from gepipe.triton.watchdog import Action, GiveUp, Kill, Load, Restart, Resume, Watchdog

_SECOND_S: Final = 1.0
_LOST_S: Final = 10.0
_STILL_LOADING_S: Final = 10.0
_READY: Final = "ready"

Say = Callable[[str], None]


class Keeper:
    """Loads all models, and keeps them serving.

    Attributes:
        report: How things are.

    Args:
        server: A server that answers.
        repository: The folder of models.
        models: What is there.
        loader: Of that server.
        watchdog: Of that server.
        say: Told what happens.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what it is made of
        self,
        server: Server,
        repository: Path,
        models: Mapping[str, ModelFolder],
        loader: Loader,
        watchdog: Watchdog,
        say: Say,
    ) -> None:
        self.report = Report("starting", dict.fromkeys(models, "loading"))
        self._server = server
        self._repository = repository
        self._models = models
        self._loader = loader
        self._watchdog = watchdog
        self._say = say
        self._changes = Changes(models)
        self._states = dict.fromkeys(models, "loading")
        self._notes: dict[str, str] = {}
        self._due: dict[str, float] = {}  # models to be loaded again, and when
        self._began: dict[str, float] = {}
        self._unavailable: set[str] = set()  # told so
        self._is_gone = False
        self._all_or_none = True
        self._second = self._answered = self._told = time.monotonic()
        self._first: set[str] = set()  # loads of the start that have not come to their end

    def start(self, *, all_or_none: bool) -> None:
        """Have every model loaded; the server must answer.

        Args:
            all_or_none: Whether a model that does not load is an error; else it is tried again
                like one that has died, and the others serve.
        """
        self._all_or_none = all_or_none
        self._first = {task.model for task in self._load(self._models)}

    @property
    def is_starting(self) -> bool:
        """Whether models are still being loaded for the first time."""
        return bool(self._first)

    def turn(self, faults_in: Callable[[], Mapping[str, str]] | None) -> None:
        """Look at everything once, and do what is to be done.

        Args:
            faults_in: Tells which models must not be loaded, by name, and why; None if
                nothing that changes there is taken in.

        Raises:
            WorkerError: The server has ended by itself.
            ModelLoadError: At the start, a model does not load; see `start`.
        """
        now = time.monotonic()
        self._server.check()
        self._resume_server()
        for outcome in self._loader.outcomes():
            self._take(now, outcome)
        for action in self._watchdog.see(now, children_of(self._server.pid), self._models):
            self._perform(now, action)
        self._restart_due(now)
        self.report = self._look()
        if now - self._second >= _SECOND_S:
            self._second = now
            if self.report.is_alive and math.isfinite(self._watchdog.hang_timeout_s):
                for action in self._watchdog.count(now, self._requests()):
                    self._perform(now, action)
            if faults_in is not None and not self.is_starting:
                self._reload(now, faults_in)
        if self.is_starting and now - self._told > _STILL_LOADING_S:
            self._told = now
            self._say(f"still loading: {', '.join(sorted(self._first))}")

    def _perform(self, now: float, action: Action) -> None:
        match action:
            case Restart(model, instance, delay_s):
                when = f" in {delay_s:.0f} s" if delay_s else ""
                what = f"its process {instance} has died" if instance else "it did not load"
                self._say(f"model {model}: {what}; loading it again{when}")
                self._states[model] = "restarting"
                self._mourn(model)
                self._due[model] = now + delay_s
            case Resume(pid, model):
                self._say(f"model {model}: its process {pid} was stopped, and goes on")
                resumed(pid)
            case Kill(pid, model, reason):
                if reason:
                    self._say(f"model {model}: it hangs ({reason}); its process {pid} is killed")
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            case GiveUp(model, deaths):
                why = f"died {deaths} times within ten minutes"
                self._say(f"model {model}: {why}, and stays down until its files change")
                self._states[model] = why
                self._watchdog.replaced(now, model)
                self._loader.add([Task("unload", model)])

    def _mourn(self, model: str) -> None:
        """Note that a model has a dead instance, and requests that nobody answers any more."""
        self._server.dead.add(model)
        for name, each in self._models.items():
            if model in each.steps:
                self._server.bereft |= {name, *each.steps}

    def attend(self) -> None:
        """Look after the processes while the server stops: nothing is loaded again."""
        now = time.monotonic()
        self._resume_server()
        for action in self._watchdog.see(now, children_of(self._server.pid), self._models):
            if isinstance(action, Restart):
                self._mourn(action.model)
            elif not isinstance(action, GiveUp):
                self._perform(now, action)

    def _resume_server(self) -> None:
        if resumed(self._server.pid):
            self._say("the server was stopped, and goes on")

    def _restart_due(self, now: float) -> None:
        for model in [name for name, when in self._due.items() if when <= now]:
            del self._due[model]
            self._began[model] = now
            self._watchdog.replaced(now, model)
            self._loader.add([Task("restart", model)])

    def _take(self, now: float, outcome: Outcome) -> None:
        """Take in what has become of a task."""
        task = outcome.task
        causes = _root_causes(outcome.faults, self._models)
        if task.model in self._first:
            self._take_first(now, task, causes)
            return
        if task.model not in self._models or task.kind == "unload":
            return
        if task.kind == "restart":
            if outcome.faults:
                self._say(f"model {task.model}: {outcome.faults[task.model]}")
                self._perform(now, self._watchdog.failed(now, task.model))
            else:
                self._serves(task.model)
                took = now - self._began.pop(task.model, now)
                self._say(f"model {task.model}: serves again after {took:.1f} s")
            return
        for name, why in causes:
            self._say(f"model {name}: {self._refused(name, why)}")
        for name in outcome.faults.keys() - dict(causes):  # ensembles: they do once their steps do
            self._serves(name)
        for name in (task.model, *task.steps):
            if name in self._models and name not in outcome.faults:
                if self._states[name] != _READY:
                    self._serves(name)
                if name == task.model or name in task.changed:
                    self._notes.pop(name, None)
                    self._say(f"model {name}: the new version serves")

    def _take_first(self, now: float, task: Task, causes: list[tuple[str, str]]) -> None:
        """Take in what has become of a load of the start."""
        if causes and self._all_or_none:
            lines = "\n".join(f"model {name}: {why}" for name, why in causes)
            raise ModelLoadError(f"{self._repository}: a model does not load:\n{lines}")
        self._first.discard(task.model)
        # With another ensemble, whose step it is too.
        told = {name for name, _ in causes if self._states.get(name, "loading") != "loading"}
        for name in (task.model, *task.steps):  # an ensemble does once its steps do
            if name not in told:
                self._serves(name)
        for name, why in causes:
            if name in told:
                continue
            self._say(f"model {name}: {why}")
            self._perform(now, self._watchdog.failed(now, name))

    def _serves(self, model: str) -> None:
        self._states[model] = _READY
        self._server.dead.discard(model)
        self._watchdog.serves(model)

    def _refused(self, model: str, why: str) -> str:
        """Note that a new version does not load; return it in words."""
        if self._states.get(model) == _READY:
            self._notes[model] = f"the new version does not load, the one before serves on: {why}"
            return self._notes[model]
        self._states[model] = f"does not load: {why}"
        return self._states[model]

    def _reload(self, now: float, faults_in: Callable[[], Mapping[str, str]]) -> None:
        """Take in what has changed in the repository, unless all of it is gone."""
        models = scan(self._repository)
        if bool(models) == self._is_gone:
            self._is_gone = not models
            serves = "is there again" if models else "has no models; what is loaded serves on"
            self._say(f"{self._repository}: {serves}")
        if models and (change := self._changes.look(models)):
            self._adopt(now, change, faults_in)

    def _adopt(
        self, now: float, change: Change, faults_in: Callable[[], Mapping[str, str]]
    ) -> None:
        """Take in what has changed in the repository."""
        before, self._models = self._models, change.models
        for name in sorted(change.removed, key=lambda name: not before[name].steps):
            self._say(f"model {name}: removed, and unloaded")
            for known in (self._states, self._notes, self._due):
                known.pop(name, None)
            self._unavailable.discard(name)
            self._watchdog.replaced(now, name)
            self._loader.add([Task("unload", name)])
        try:
            faults = faults_in() if change.changed else {}
        except GepipeError as error:  # it moves while it is read
            faults = dict.fromkeys(change.changed, str(error))
        names: list[str] = []
        for name in change.changed:
            self._states.setdefault(name, "loading")
            if name in faults:
                self._say(f"model {name}: {self._refused(name, faults[name])}")
                continue
            self._watchdog.forget(name)
            names.append(name)
            if self._states[name] != _READY:
                self._states[name] = "loading"
                self._due.pop(name, None)
                self._watchdog.replaced(now, name)
        self._load(names)

    def _load(self, names: Iterable[str]) -> list[Task]:
        names = list(names)
        tasks: list[Task] = []
        for name in load_order(names, self._models):
            steps = self._models[name].steps
            changed = () if self.is_starting else tuple(step for step in steps if step in names)
            kind: Kind = "restart" if name in self._server.dead else "load"
            tasks.append(Task(kind, name, steps, changed))
        self._loader.add(tasks)
        return tasks

    def _requests(self) -> dict[str, Load]:
        try:
            waiting = self._server.waiting()
            return {
                each["name"]: Load(
                    each["inference_stats"]["success"]["count"]
                    + each["inference_stats"]["fail"]["count"],
                    waiting.get(each["name"], 0),
                )
                for each in self._server.control.statistics()
            }
        except ControlError:
            return {}

    def _look(self) -> Report:
        """Return how things are, by our own account and by the server's."""
        try:
            index = _by_name(self._server.control.index())
        except ControlError as error:
            if time.monotonic() - self._answered >= _LOST_S:
                return Report("lost", dict.fromkeys(self._models, str(error)))
            return self.report
        self._answered = time.monotonic()
        models: dict[str, str] = {}
        for name, state in sorted(self._states.items()):
            found = index.get(name, {})
            models[name] = state
            if state == _READY and found.get("state") != "READY":
                models[name] = f"unavailable: {found.get('reason', 'not loaded')}"
                if name not in self._unavailable:
                    self._say(f"model {name}: {models[name]}{self._hint(name)}")
                    self._unavailable.add(name)
            elif name in self._unavailable:
                self._unavailable.discard(name)
                self._say(f"model {name}: available again")
        return Report("starting" if self.is_starting else "serving", models, dict(self._notes))

    def _hint(self, name: str) -> str:
        """Return what keeps an ensemble from serving, which the server does not tell."""
        steps = self._models[name].steps
        if down := [step for step in steps if self._states.get(step) != _READY]:
            return f"; its steps {', '.join(down)} do not serve"
        return "; expected steps whose tensors fit each other and the ensemble" if steps else ""


def _by_name(versions: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return one version of each model: one that serves, or the last."""
    found: dict[str, dict[str, Any]] = {}
    for each in versions:
        if found.get(each["name"], {}).get("state") != "READY":
            found[each["name"]] = each
    return found


def _root_causes(
    faults: Mapping[str, str], models: Mapping[str, ModelFolder]
) -> list[tuple[str, str]]:
    """Return faults without those of ensembles that follow from a step's."""
    return [
        (name, why)
        for name, why in faults.items()
        if not (name in models and set(models[name].steps) & set(faults))
    ]
