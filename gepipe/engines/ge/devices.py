"""Which devices a process may use, without touching ACL."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_NODES: Final = Path("/dev")
_VISIBLE: Final = "ASCEND_RT_VISIBLE_DEVICES"


def visible(count: int) -> tuple[int, ...]:
    """Return the devices that are left of `count`, as ACL numbers them: from 0.

    `ASCEND_RT_VISIBLE_DEVICES` lists those that a process may use. They must ascend, and reading
    stops at the first bad one: an unknown or repeated number, one out of order, or a blank.
    """
    listed = os.environ.get(_VISIBLE)
    if listed is None:
        return tuple(range(count))
    chosen: list[int] = []
    for token in listed.split(","):
        if not re.fullmatch(r"[0-9]{1,4}", token):
            break
        if int(token) >= count or (chosen and int(token) <= chosen[-1]):
            break
        chosen.append(int(token))
    return tuple(range(len(chosen)))


def cards(folder: Path = _NODES) -> int:
    """Return how many device nodes there are."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return 0
    return sum(1 for name in names if re.fullmatch(r"davinci\d+", name))
