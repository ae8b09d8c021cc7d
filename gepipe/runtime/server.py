"""Imported by the fork server alone: removes its socket when the supervisor was killed.

The socket lies in a folder of its own below /tmp. A supervisor that ends by itself removes both;
one that is killed cannot, and the server is what outlives it.
"""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import suppress
from pathlib import Path

from multiprocess import forkserver

_parent = os.getppid()


@atexit.register
def remove_socket() -> None:
    """Remove the socket and its folder, unless the supervisor is there to do it."""
    for _ in range(4):  # it closes its files a moment before it is gone
        if os.getppid() != _parent:
            break
        threading.Event().wait(0.005)
    else:
        return
    address = forkserver._forkserver._forkserver_address  # noqa: SLF001 - no public way exists
    if isinstance(address, str) and address.startswith("/"):
        with suppress(OSError):
            Path(address).unlink()
        with suppress(OSError):  # kept if there is anything else in it
            Path(address).parent.rmdir()
