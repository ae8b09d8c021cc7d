"""The folder in which an export is written before it takes the place of the one before.

Each holds a lock for as long as its process lives. One that holds none was left by an export that
was killed, and the next export removes it: models are large.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_LOCK: Final = "lock"


@contextmanager
def stage_for(repository: Path) -> Iterator[Path]:
    """Make a folder on the same file system in which the server does not look for models.

    Args:
        repository: A folder that is there.
    """
    folder = repository.resolve()
    beside = folder.parent
    same = beside.stat().st_dev == folder.stat().st_dev and os.access(beside, os.W_OK | os.X_OK)
    place, prefix = beside if same else folder, f".{folder.name}-export-"
    for left in [each for each in place.iterdir() if each.name.startswith(prefix)]:
        _remove_unlocked(left)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=place) as name:
        stage = Path(name)
        unlocked = stage / f"{_LOCK}.part"  # a folder without a lock is nobody's to remove
        with unlocked.open("w") as lock:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
                unlocked.rename(stage / _LOCK)
            yield stage


def _remove_unlocked(stage: Path) -> None:
    with suppress(OSError), (stage / _LOCK).open() as lock:  # in use, or being removed
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(stage)
