"""The folder of one run of a server, and what a run that was killed has left behind.

Each run holds a lock on its folder for as long as it lives. A folder without a lock is a leftover:
its folder says which processes and which names in shared memory were its own, and only those go.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from gepipe.errors import ConfigError
from gepipe.triton.processes import command_of

_SHM: Final = Path("/dev/shm")  # noqa: S108 - where Triton's stubs keep their regions
_LOCK: Final = "lock"
_PREFIX: Final = "gepipe_"


class Run:
    """A folder for one server.

    Attributes:
        folder: Its path; without spaces, which Triton does not quote.
        prefix: What the names of its regions in shared memory begin with.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.prefix = f"{folder.name}_"

    def regions(self) -> list[Path]:
        """Return the regions in shared memory that are there."""
        return sorted(_SHM.glob(f"{self.prefix}*"))

    def processes(self) -> list[int]:
        """Return the processes that name this run in their command: the server and its stubs."""
        found: list[int] = []
        mark = self.folder.name
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and entry.name != str(os.getpid()):
                command = command_of(int(entry.name))
                program = Path(command[0]).name if command else ""
                if program.startswith("triton") and any(mark in word for word in command):
                    found.append(int(entry.name))
        return found

    def clean(self) -> int:
        """End what still runs, and remove its shared memory; return how many regions there were."""
        for pid in self.processes():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        regions = self.regions()
        for region in regions:
            region.unlink(missing_ok=True)
        return len(regions)


@contextmanager
def new_run(say: Callable[[str], None] = lambda _: None) -> Iterator[Run]:
    """Make a folder for a run, and clean up what runs that were killed have left.

    Args:
        say: Told what was cleaned up.

    Raises:
        ConfigError: There is no place for it.
    """
    home = _home()
    for left in leftovers(home):
        count = left.clean()
        shutil.rmtree(left.folder, ignore_errors=True)
        say(f"cleaned up after a server that was killed; regions in shared memory: {count}")
    run = Run(home / f"{_PREFIX}{os.getpid()}_{uuid.uuid4().hex[:8]}")
    unlocked = home / f".{run.folder.name}"  # a name that nobody takes for a leftover
    unlocked.mkdir(mode=0o700)
    with (unlocked / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unlocked.rename(run.folder)
        try:
            yield run
        finally:
            run.clean()
            shutil.rmtree(run.folder, ignore_errors=True)


def leftovers(home: Path) -> list[Run]:
    """Return the runs below a folder whose process is gone."""
    found: list[Run] = []
    for folder in home.glob(f"{_PREFIX}*"):
        try:
            with (folder / _LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # in use, or being removed
            continue
        found.append(Run(folder))
    return found


def _home() -> Path:
    """Return our folder for runs, which nobody else can write."""
    base = Path(tempfile.gettempdir()).resolve()
    if any(character.isspace() for character in str(base)):
        base = Path("/tmp")  # noqa: S108 - the folder below it is ours alone
    home = base / f"gepipe-triton-{os.getuid()}"
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        found = home.lstat()
    except OSError as error:
        raise ConfigError(f"{home}: {error.strerror}; set TMPDIR to a folder for files") from error
    if found.st_uid != os.getuid() or home.is_symlink() or found.st_mode & 0o022:
        raise ConfigError(f"{home}: somebody else could write there; set TMPDIR to another folder")
    return home
