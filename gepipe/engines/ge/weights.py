"""Weights in device memory: once for all models of a process that come from the same file.

The CANN manual lets several `load_from_file_with_mem` of one file share the memory of its weights.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from gepipe.engines.ge.runtime import HUGE_FIRST, Acl

#: Device, and the file by name, time of change and size.
Key: TypeAlias = tuple[int, str, int, int]


@dataclass
class _Block:
    address: int
    users: int = 0


_blocks: Final[dict[Key, _Block]] = {}
_lock: Final = threading.Lock()


def key_of(device: int, path: Path) -> Key:
    """Return by what a model's weights are known on a device."""
    stat = path.stat()
    return device, str(path.resolve()), stat.st_mtime_ns, stat.st_size


def is_loaded(key: Key) -> bool:
    """Return whether the weights lie on the device already."""
    return key in _blocks


def lend(acl: Acl, key: Key, nbytes: int, stack: ExitStack) -> int:
    """Return where the weights lie or are to be loaded to; the last user's stack frees them.

    Args:
        acl: The library, with a context of the device current.
        key: Device and file.
        nbytes: Size of the weights; 0 for a model that has none.
        stack: The user's; unwound when its model is unloaded.
    """
    if not nbytes:
        return 0
    with _lock:
        block = _blocks.get(key)
        if block is None:
            block = _blocks[key] = _Block(int(acl.malloc(nbytes, HUGE_FIRST)))
        block.users += 1
    stack.callback(_give_back, acl, key)
    return block.address


def _give_back(acl: Acl, key: Key) -> None:
    with _lock:
        block = _blocks[key]
        block.users -= 1
        if block.users:
            return
        del _blocks[key]
    acl.free(block.address)
