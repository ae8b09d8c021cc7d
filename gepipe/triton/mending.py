"""Writes repairs to the disk: each file whole or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from gepipe.errors import GepipeError, reason_of
from gepipe.triton.lint import Report
from gepipe.triton.models import CONFIG, Model
from gepipe.triton.problem import Make, Move


def mend(report: Report) -> None:
    """Make the changes that a report proposes.

    Raises:
        GepipeError: A file cannot be changed. Those before it are.
    """
    for model in report.models.values():
        if model.draft and model.draft.text != model.draft.original:
            _replace(model.files[CONFIG], model.draft.text)
    for model, action in report.actions:
        _act(model, action)


def _act(model: Model, action: Make | Move) -> None:
    try:
        if isinstance(action, Make):
            folder = model.folder / action.folder
            folder.mkdir()
            (folder / ".keep").touch()
        else:
            new = model.folder / action.new
            if new.exists():
                raise FileExistsError(17, "there is something of that name already")
            (model.folder / action.old).rename(new)
    except OSError as error:
        what = action.folder if isinstance(action, Make) else action.new
        raise GepipeError(f"cannot make {model.folder / what}: {reason_of(error)}") from error


def _replace(path: Path, text: str) -> None:
    """Put a text in a file's place; what the name leads to is replaced, and keeps its mode."""
    real = Path(os.path.realpath(path))
    name = ""
    try:
        mode = real.stat().st_mode & 0o7777
        fd, name = tempfile.mkstemp(prefix=f".{real.name}-", dir=real.parent)
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
            file.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        os.replace(name, real)  # noqa: PTH105 - `name` is text
    except OSError as error:
        if name:
            with suppress(OSError):
                os.unlink(name)  # noqa: PTH108
        raise GepipeError(f"cannot write {path}: {reason_of(error)}") from error
