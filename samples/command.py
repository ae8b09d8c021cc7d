"""Runs the clients of package registries, as commands."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_LIMIT_S: Final = 900


def said_by(command: Sequence[str], folder: Path | None = None) -> tuple[int | None, list[str]]:
    """Run a client; return its exit code and the lines that it wrote.

    Args:
        command: A fixed program, with arguments from the catalogue.
        folder: Where it is to run.

    Returns:
        None and the reason if it cannot be run, or does not end.
    """
    # pip refuses to work outside a virtual environment where this is set, but nothing is installed.
    environment = {**os.environ, "PIP_REQUIRE_VIRTUALENV": "0"}
    try:
        done = subprocess.run(  # noqa: S603 - see `command`
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, [str(error)]
    return done.returncode, [line.strip() for line in done.stdout.splitlines() if line.strip()]
