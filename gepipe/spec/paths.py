"""Where a path written in a pipeline file leads.

An input (a model, labels, photos, a Python file) is looked for from the current directory first,
then from the folder of the file that names it. What is found from the current directory, or not at
all, stays as it was written, so results do not depend on where a checkout lies. An output
is always relative to the current directory and is left alone.
"""

from __future__ import annotations

import dataclasses
import glob
import os
import re
from collections.abc import Collection
from pathlib import Path, PurePath
from typing import Any, Final, TypeVar

_MAGIC: Final = re.compile(r"[*?\[]")
_USER_FILE: Final = re.compile(r"(?P<path>[^:]*\.py)(?P<rest>:\w+)")
T = TypeVar("T")


def resolve(path: str | PurePath, base: Path | None) -> Path:
    """Return the path of an input as seen from the current directory.

    Args:
        path: As written; `~` means the home folder, and a glob pattern may end it.
        base: Folder of the pipeline file, or None where there is none.
    """
    return Path(resolve_text(str(path), base))


def resolve_text(text: str, base: Path | None) -> str:
    """Do the same as `resolve` for text, and keep what is no path: `-` and `scheme://…`."""
    if text in ("", "-") or "://" in text:
        return text
    if text == "~" or text.startswith("~/"):
        return os.path.expanduser(text)  # noqa: PTH111 - Path's raises where there is no home
    path = Path(text)
    if base is None or path.is_absolute() or _exists(path, Path()) or not _exists(path, base):
        return text
    return str(base / path)


def resolve_fields(part: T, base: Path | None, texts: Collection[str] = ()) -> T:
    """Return an operator or source with its input paths resolved.

    Fields that hold a `Path` are paths, as are `file.py:function` references in text fields.

    Args:
        part: A frozen dataclass.
        base: Folder of the pipeline file, or None where there is none.
        texts: Names of the text fields that hold paths too.
    """
    changed = {}
    for field in dataclasses.fields(part):  # type: ignore[arg-type]
        old = getattr(part, field.name)
        new = _resolved(old, base, is_path=field.name in texts)
        if field.init and new != old:
            changed[field.name] = new
    return dataclasses.replace(part, **changed) if changed else part  # type: ignore[type-var]


def _resolved(value: Any, base: Path | None, *, is_path: bool) -> Any:
    if isinstance(value, Path):
        return resolve(value, base)
    if isinstance(value, str) and is_path:
        return resolve_text(value, base)
    if isinstance(value, str) and (found := _USER_FILE.fullmatch(value)):
        return resolve_text(found["path"], base) + found["rest"]
    if isinstance(value, tuple):
        return tuple(_resolved(item, base, is_path=is_path) for item in value)
    return value


def _exists(path: Path, folder: Path) -> bool:
    """Whether there is such a path below a folder, or something for a glob pattern to find."""
    try:
        if (folder / path).exists():
            return True
    except (OSError, ValueError):  # too long, a NUL in it, or not ours to look at
        return False
    fixed: list[str] = []
    for part in path.parts:
        if _MAGIC.search(part):
            if fixed:
                return folder.joinpath(*fixed).is_dir()
            found = glob.iglob(str(path), root_dir=folder, recursive=True)  # noqa: PTH207
            return next(found, None) is not None
        fixed.append(part)
    return False
