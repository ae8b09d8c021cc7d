"""A model repository as the server sees it: folders of models, their versions and configurations.

It is read once. Repairs change what is in memory, so that a configuration can be looked at as it
would be afterwards; what stands where on the disk stays known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gepipe.errors import ConfigError, reason_of
from gepipe.regular import read_regular
from gepipe.triton.edit import Draft
from gepipe.triton.problem import Make, Move
from gepipe.triton.textnodes import Document, Message
from gepipe.triton.textproto import parse

CONFIG: Final = "config.pbtxt"
_LARGEST_CONFIG: Final = 4 << 20
_MOST_FILES: Final = 100_000
_DEEPEST: Final = 16
_VERSION: Final = re.compile(r"0|[1-9]\d*", re.ASCII)


@dataclass(slots=True)
class Model:
    """A folder of the repository.

    Attributes:
        name: The folder's name, which is the model's.
        folder: Where it is.
        files: Each file in it, by its path from `folder`, and where it is on the disk.
        folders: Each folder in it, alike.
        draft: The configuration's text; None without one.
        document: What was read of it.
        unreadable: Why the configuration cannot be read; empty if it can.
    """

    name: str
    folder: Path
    files: dict[str, Path]
    folders: dict[str, Path]
    draft: Draft | None = None
    document: Document = field(default_factory=lambda: parse(""))
    unreadable: str = ""

    @property
    def root(self) -> Message:
        """The configuration."""
        return self.document.root

    @property
    def backend(self) -> str:
        """The backend that serves it; `ensemble` for an ensemble, empty where nothing says it."""
        if self.root.text("platform") == "ensemble" or self.root.named("ensemble_scheduling"):
            return "ensemble"
        backend = self.root.text("backend")
        if backend or self.root.named("platform"):
            return backend
        # Without either, the server takes it from the file.
        return "python" if any(n.endswith("/model.py") for n in self.version_files()) else ""

    @property
    def max_batch(self) -> int:
        """Its `max_batch_size`."""
        return self.root.integer("max_batch_size")

    def versions(self) -> list[int]:
        """Return its versions, in order."""
        return sorted(int(name) for name in self.folders if _VERSION.fullmatch(name))

    def served(self) -> list[int]:
        """Return the versions that the server loads."""
        policy = self.root.message("version_policy")
        known = self.versions()
        if policy is None:
            return known[-1:]
        if policy.named("all"):
            return known
        if specific := policy.message("specific"):
            wanted = {value.integer for value in specific.scalars("versions")}
            return [version for version in known if version in wanted]
        latest = policy.message("latest")
        most = latest.integer("num_versions") if latest and latest.named("num_versions") else 1
        return known[-most:] if most > 0 else []

    def version_files(self) -> Iterator[str]:
        """Yield the files that lie in folders of versions themselves."""
        for name in self.files:
            parts = name.split("/")
            if len(parts) == 2 and _VERSION.fullmatch(parts[0]):
                yield name

    def act(self, action: Move | Make) -> None:
        """Change the files as they are known here."""
        if isinstance(action, Make):
            self.folders[action.folder] = self.folder / action.folder
            self.files[f"{action.folder}/.keep"] = self.folder / action.folder / ".keep"
            return
        for known in (self.files, self.folders):
            for name in list(known):
                if name == action.old or name.startswith(action.old + "/"):
                    known[action.new + name[len(action.old) :]] = known.pop(name)

    def parse(self) -> None:
        """Read the configuration again after changes."""
        self.document = parse(self.draft.text if self.draft else "")


def read(root: Path) -> dict[str, Model]:
    """Return the models of a repository by name, in order.

    Raises:
        ConfigError: The folder cannot be read, or there is no model in it.
    """
    try:
        names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    except OSError as error:
        raise ConfigError(
            f"{root}: {reason_of(error)}; expected a model repository, "
            "a folder with a folder for each model"
        ) from error
    if (root / CONFIG).is_file():
        raise ConfigError(
            f"{root}: this is the folder of one model; expected a model repository; "
            f"name the folder above it, {root.resolve().parent}"
        )
    if not names:
        raise ConfigError(
            f"{root}: there is no model in it; expected a folder with a folder for each model"
        )
    return {name: _model(root / name) for name in names}


def _model(folder: Path) -> Model:
    files: dict[str, Path] = {}
    folders: dict[str, Path] = {}
    for where, below, names in os.walk(folder, followlinks=True):
        base = Path(where)
        inside = base.relative_to(folder)
        if len(files) > _MOST_FILES or len(inside.parts) > _DEEPEST:
            below.clear()
        below.sort()
        folders |= {(inside / name).as_posix(): base / name for name in below}
        files |= {(inside / name).as_posix(): base / name for name in sorted(names)}
    model = Model(folder.name, folder, files, folders)
    if CONFIG in files:
        try:
            text = read_regular(files[CONFIG], _LARGEST_CONFIG).decode("utf-8", "surrogateescape")
        except OSError as error:
            model.unreadable = reason_of(error)
        else:
            model.draft = Draft(text)
            model.parse()
    return model
