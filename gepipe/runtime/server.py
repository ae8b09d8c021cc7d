"""Imported by the fork server alone: lets it outlive signals that are meant for the supervisor.

A hang-up or a request to end may go to the whole process group. The supervisor answers it; its
workers, and the server that starts them, end when it does.

The socket lies in a folder of its own below /tmp. A supervisor that ends by itself removes both;
one that is killed cannot, and the server is what outlives it.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

from multiprocess import forkserver

from gepipe.runtime import tuning

# The parent may be gone already, and another process be it by now.
_parent = int(os.environ.pop(tuning.SUPERVISOR, 0)) or os.getppid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))  # the supervisor blocked it for us


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
