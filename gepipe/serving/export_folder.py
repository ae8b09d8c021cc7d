"""Puts folders of models into a repository: each whole or not at all, and only over its own.

What is new is written beside the repository and then takes the place of what is old in one step of
the file system; if that fails half-way, what was there before comes back.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from gepipe.errors import ExportError, reason_of
from gepipe.serving.bundle import Files
from gepipe.serving.stage import stage_for
from gepipe.triton.config import FILE_NAME

#: The first line of a configuration that an export has written.
_MADE: Final = re.compile(rb"# Made by gepipe of the pipeline '([^'\n]*)'")
_VERSION: Final = re.compile(r"0|[1-9][0-9]*", re.ASCII)
_AT_FDCWD: Final = -100
_EXCHANGE: Final = 2


class Repository:
    """A folder of models.

    Attributes:
        folder: Where it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def versions(self, model: str) -> list[int]:
        """Return the versions of a model, ascending."""
        try:
            names = [path.name for path in (self.folder / model).iterdir() if path.is_dir()]
        except OSError:
            return []
        return sorted(int(name) for name in names if _VERSION.fullmatch(name))

    def made_of(self, pipeline: str) -> list[str]:
        """Return the models that an earlier export of a pipeline has left, sorted."""
        try:
            names = sorted(path.name for path in self.folder.iterdir())
        except OSError:
            return []
        return [name for name in names if self._maker(name) == pipeline]

    def put(self, pipeline: str, files: Files, version: int, *, keep: bool) -> tuple[str, ...]:
        """Write models, and remove those of an earlier export that are no longer among them.

        Args:
            pipeline: The pipeline's name.
            files: What the models consist of, by path within the repository.
            version: The version among them.
            keep: Whether other versions of a model stay, where it is of the same kind still.

        Returns:
            The models that were removed.

        Raises:
            ExportError: A folder is somebody else's, or nothing can be written.
        """
        models = sorted({name.partition("/")[0] for name in files})
        for model in models:
            self._require_ours(model, pipeline)
        gone = [model for model in self.made_of(pipeline) if model not in models]
        with told(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with stage_for(self.folder) as stage:
                _write(stage / "new", files)
                for model in models if keep else ():
                    self._keep_versions(model, stage / "new" / model, version)
                self._swap(models, gone, stage)
        return tuple(gone)

    def _maker(self, model: str) -> str | None:
        """Return the pipeline that an export has made a model of; None if it was made otherwise."""
        try:
            with (self.folder / model / FILE_NAME).open("rb") as file:
                found = _MADE.match(file.readline(512))
        except OSError:
            return None
        return found[1].decode(errors="replace") if found else None

    def _require_ours(self, model: str, pipeline: str) -> None:
        place = self.folder / model
        if not os.path.lexists(place):
            return
        maker = self._maker(model)
        if maker is None:
            raise ExportError(
                f"{place}: is there already, and no export of gepipe has made it; move it away, or "
                "give the pipeline another name"
            )
        if maker != pipeline:
            raise ExportError(
                f"{place}: belongs to the pipeline {maker!r}; give one of the two another name"
            )

    def _keep_versions(self, model: str, fresh: Path, version: int) -> None:
        """Take the other versions of a model along into its new folder."""
        old = self.folder / model
        others = [other for other in self.versions(model) if other != version]
        if not others or _kind(old) != _kind(fresh):  # an ensemble's is nothing for a model, say
            return
        for other in others:
            shutil.copytree(old / str(other), fresh / str(other), copy_function=_link)

    def _swap(self, models: Sequence[str], gone: Sequence[str], stage: Path) -> None:
        undo: list[tuple[Path, Path]] = []
        (stage / "old").mkdir()
        try:
            # What an ensemble consists of comes before the ensemble itself.
            for model in sorted(models, key=len, reverse=True):
                fresh, place = stage / "new" / model, self.folder / model
                if place.exists():
                    _exchange(fresh, place)
                else:
                    fresh.rename(place)
                undo.append((place, fresh))
            for model in gone:
                (self.folder / model).rename(stage / "old" / model)
        except OSError:
            for place, fresh in reversed(undo):
                if fresh.exists():
                    _exchange(fresh, place)
                else:
                    place.rename(fresh)
            for model in gone:
                with suppress(FileNotFoundError):
                    (stage / "old" / model).rename(self.folder / model)
            raise


@contextmanager
def told(place: Path) -> Iterator[None]:
    """Turn errors of the file system into ours.

    Raises:
        ExportError: The file system refused something.
    """
    try:
        yield
    except OSError as error:
        why = reason_of(error)
        raise ExportError(f"{error.filename or place}: cannot be written: {why}") from error
    except shutil.Error as error:
        raise ExportError(f"{place}: cannot be written: {error}") from error


def _write(folder: Path, files: Mapping[str, bytes | Path]) -> None:
    for name, content in sorted(files.items()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, path)
        else:
            path.write_bytes(content)
        path.chmod(0o755 if path.suffix == ".sh" else 0o644)


def _link(source: str, target: str) -> None:
    """Share a file that never changes again; models are large."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _kind(model: Path) -> bytes:
    """Return the line of a configuration that names its backend or platform."""
    text = (model / FILE_NAME).read_bytes()
    return next((line for line in text.splitlines() if not line.startswith(b"#")), b"")


def _exchange(one: Path, other: Path) -> None:
    """Let two folders change places, in one step where the file system can."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = (os.fsencode(one), os.fsencode(other))
    if libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE) == 0:
        return
    code = ctypes.get_errno()
    if code not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(code, os.strerror(code), str(other))
    aside = one.with_name(f"{one.name}.aside")
    other.rename(aside)
    one.rename(other)
    aside.rename(one)
