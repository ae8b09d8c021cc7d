"""The process in which the server runs a Python model."""

from __future__ import annotations

import gc
import os
import sys

from gepipe.runtime.tuning import keep_freed_memory


def settle() -> None:
    """Prepare the process for workers, which inherit where it imports from. Call it first.

    Its first place to import from is the working folder, which is the server's; workers would
    import from there first, whatever lies there. `PYTHONPATH`, by which CANN's `set_env.sh` makes
    `acl` known, is not read by the server's Python; it comes last here, behind the NumPy and the
    gepipe of the stub's own environment.

    It copies each tensor into memory of its own before it hands it over, and frees that again.
    """
    keep_freed_memory()
    sys.path[:] = [place for place in sys.path if place]
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path += [place for place in dict.fromkeys(named) if place and place not in sys.path]


def leave(model: object) -> None:
    """Let go of the requests that a model holds. Call it last.

    They lie in memory that a stub gives back before it ends Python, and what is freed later than
    that crashes it.

    Args:
        model: The server's; it has no attributes afterwards.
    """
    vars(model).clear()
    gc.collect()
