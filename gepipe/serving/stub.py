"""The process in which the server runs a Python model."""

from __future__ import annotations

import sys


def settle() -> None:
    """Prepare the process for workers. Call it first.

    Its first place to import from is the working folder, which is the server's; workers inherit
    that, and would import from there first, whatever lies there.
    """
    sys.path[:] = [place for place in sys.path if place]
