"""Where a path written in a pipeline file leads.

An input (a model, labels, photos, a Python file) is looked for from the current directory first,
then from the folder of the file that names it. What is found from the current directory, or not at
all, stays as it was written, so results do not depend on where a checkout lies. An output
is always relative to the current directory and is left alone.
"""

from __future__ import annotations

import dataclasses
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
    if text.startswith("~"):
        return str(Path(text).expanduser())
    path = Path(text)
    if base is None or path.is_absolute() or _exists(path) or not _exists(base / path):
        return text
    return str(base / path)


def resolve_fields(part: T, base: Path, texts: Collection[str] = ()) -> T:
    """Return an operator or source with its input paths resolved.

    Fields that hold a `Path` are paths, as are `file.py:function` references in text fields.

    Args:
        part: A frozen dataclass.
        base: Folder of the pipeline file.
        texts: Names of the text fields that hold paths too.
    """
    changed = {}
    for field in dataclasses.fields(part):  # type: ignore[arg-type]
        old = getattr(part, field.name)
        new = _resolved(old, base, is_path=field.name in texts)
        if field.init and new != old:
            changed[field.name] = new
    return dataclasses.replace(part, **changed) if changed else part  # type: ignore[type-var]


def _resolved(value: Any, base: Path, *, is_path: bool) -> Any:
    if isinstance(value, Path):
        return resolve(value, base)
    if isinstance(value, str) and is_path:
        return resolve_text(value, base)
    if isinstance(value, str) and (found := _USER_FILE.fullmatch(value)):
        return resolve_text(found["path"], base) + found["rest"]
    if isinstance(value, tuple):
        return tuple(_resolved(item, base, is_path=is_path) for item in value)
    return value


def _exists(path: Path) -> bool:
    """Whether there is such a path, or a folder for a glob pattern to search."""
    if path.exists():
        return True
    fixed: list[str] = []
    for part in path.parts:
        if _MAGIC.search(part):
            return Path(*fixed).is_dir() if fixed else any(Path().glob(str(path)))
        fixed.append(part)
    return False
