"""An endpoint that tells the truth: this server stays `ready` when a stub has died.

GET /healthz is 200 while the server answers or is being started, /readyz while every model serves;
else they are 503. Both tell how each model is, as JSON.
"""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from typing_extensions import Self

_PATIENCE_S: Final = 10.0


@dataclass(frozen=True)
class Report:
    """How a server is.

    Attributes:
        status: `starting`, `serving`, `restarting`, `stopping` or `lost`.
        models: Name to `ready`, or why it is not.
        notes: Name to what else is to be said, such as that an older version serves.
    """

    status: str
    models: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def is_alive(self) -> bool:
        """Whether the server answers, or is being started."""
        return self.status != "lost"

    @property
    def is_ready(self) -> bool:
        """Whether every model serves."""
        return self.status == "serving" and all(each == "ready" for each in self.models.values())

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps(
            {"status": self.status, "ready": self.is_ready, "models": self.models}
            | ({"notes": self.notes} if self.notes else {}),
            indent=1,
        )


class Health:
    """Listens on a port of its own and answers with the last report, from a thread.

    Args:
        host: The address that it listens on.
        port: A port that is free.
    """

    def __init__(self, host: str, port: int) -> None:
        self.report = Report("starting")
        self._server = _Server(self, host, port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # of the default, 5, idle callers would leave nothing to a probe

    def __init__(self, health: Health, host: str, port: int) -> None:
        self.health = health
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the caller has left."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _PATIENCE_S
    server: _Server

    def do_GET(self) -> None:
        report = self.server.health.report
        good = {"/healthz": report.is_alive, "/readyz": report.is_ready}.get(self.path)
        if good is None:
            self._answer(HTTPStatus.NOT_FOUND, '{"error": "expected /healthz or /readyz"}')
        else:
            self._answer(HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, report.text())

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, status: HTTPStatus, text: str) -> None:
        body = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing: probes come every few seconds."""
