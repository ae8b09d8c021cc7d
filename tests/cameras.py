"""A camera on loopback, for tests of live sources."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path


class Camera:
    """Sends a clip to whoever connects, again and again, at its own pace.

    Attributes:
        address: Where to connect.
        connections: How many there were.
        stop_behind: Bytes behind which a connection is closed; None for none.
        silent_behind: Bytes behind which nothing more comes over a connection; None for none.
    """

    def __init__(self, path: Path, *, bytes_a_second: float) -> None:
        self.connections = 0
        self.stop_behind: int | None = None
        self.silent_behind: int | None = None
        self._data = path.read_bytes()
        self._pace = bytes_a_second
        self._over = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            with sock, suppress(OSError):
                self._send(sock)

    def _send(self, sock: socket.socket) -> None:
        sent, began = 0, time.monotonic()
        while not self._over.is_set():
            piece = self._data[sent % len(self._data) :][:1880]
            sock.sendall(piece)
            sent += len(piece)
            if self.stop_behind is not None and sent >= self.stop_behind:
                return
            if self.silent_behind is not None and sent >= self.silent_behind:
                with suppress(TimeoutError):
                    sock.settimeout(10)
                    sock.recv(1)  # until the other end lets go
                return
            self._over.wait(max(0.0, began + sent / self._pace - time.monotonic()))

    def close(self) -> None:
        self._over.set()
        with suppress(OSError):  # closed before
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(60)
