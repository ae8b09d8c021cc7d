"""The folder of models as it lies on the disk, and what has changed there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gepipe.triton.config import FILE_NAME
from gepipe.triton.textproto import parse

_NOT_OURS: Final = "__pycache__"  # Python writes it while a model is loaded


@dataclass(frozen=True)
class ModelFolder:
    """A model's folder.

    Attributes:
        mark: What tells one state of its files from another.
        steps: The models that it runs, if it is an ensemble.
    """

    mark: int
    steps: tuple[str, ...]


def scan(repository: Path) -> dict[str, ModelFolder]:
    """Return the models of a repository by name, sorted; those are folders with a config.pbtxt."""
    found: dict[str, ModelFolder] = {}
    with suppress(OSError):
        for folder in sorted(repository.iterdir()):
            if folder.name.startswith(".") or not (folder / FILE_NAME).is_file():
                continue
            with suppress(OSError):
                text = (folder / FILE_NAME).read_text(errors="replace")
                found[folder.name] = ModelFolder(_mark(folder), steps_of(text))
    return found


def steps_of(config: str) -> tuple[str, ...]:
    """Return the models that an ensemble runs, from the text of its config.pbtxt."""
    scheduling = parse(config).root.message("ensemble_scheduling")
    if scheduling is None:
        return ()
    return tuple(step.text("model_name") for step in scheduling.messages("step"))


def _mark(folder: Path) -> int:
    facts: list[tuple[str, int, int, int]] = []
    for place, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if name != _NOT_OURS)
        facts.append((place, 0, 0, 0))
        for name in sorted(files):
            path = os.path.join(place, name)  # noqa: PTH118 - some thousand files each second
            with suppress(OSError):
                stat = os.stat(path)  # noqa: PTH116
                facts.append((path, stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return hash(tuple(facts))


def load_order(names: Iterable[str], models: Mapping[str, ModelFolder]) -> list[str]:
    """Return which models to load: a server loads the steps of an ensemble with it.

    Args:
        names: The models that shall be loaded.
        models: All that there are.
    """
    names = list(names)
    below = {step for name in names for step in models[name].steps}
    top = [name for name in names if name not in below]
    return sorted(top, key=lambda name: not models[name].steps)


@dataclass(frozen=True)
class Change:
    """What is different from what was taken in before.

    Attributes:
        models: All that there are now.
        changed: Names of those that are new, or have other files.
        removed: Names of those that are gone.
    """

    models: Mapping[str, ModelFolder]
    changed: tuple[str, ...]
    removed: tuple[str, ...]


class Changes:
    """Tells what has changed in a repository once it is quiet again.

    Args:
        models: What has been taken in.
    """

    def __init__(self, models: Mapping[str, ModelFolder]) -> None:
        self._taken = dict(models)
        self._last = dict(models)

    def look(self, models: Mapping[str, ModelFolder]) -> Change | None:
        """Return what has changed, if nothing moved since the last look; and take it in."""
        is_quiet = models == self._last
        self._last = dict(models)
        if not is_quiet or models == self._taken:
            return None
        change = Change(
            self._last,
            tuple(name for name, model in models.items() if self._taken.get(name) != model),
            tuple(name for name in self._taken if name not in models),
        )
        self._taken = self._last
        return change
