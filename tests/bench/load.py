"""A load of HTTP requests on a Triton server, from one thread that costs little itself."""

from __future__ import annotations

import heapq
import json
import selectors
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

_CHUNK = 1 << 16


@dataclass(frozen=True)
class Call:
    """A request, ready to be sent, and what is asked of the answer.

    Attributes:
        data: The whole HTTP request.
    """

    data: bytes

    @classmethod
    def of(cls, model: str, content: bytes, name: str = "IMAGE", **parameters: Any) -> Call:
        """Return the call of a model with one BYTES element, whose answer is JSON."""
        body = struct.pack("<I", len(content)) + content
        head = {
            "inputs": [
                {
                    "name": name,
                    "shape": [1, 1],
                    "datatype": "BYTES",
                    "parameters": {"binary_data_size": len(body)},
                }
            ]
        }
        if parameters:
            head["parameters"] = parameters
        text = json.dumps(head).encode()
        lines = (
            f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\n"
            f"Inference-Header-Content-Length: {len(text)}\r\n"
            f"Content-Length: {len(text) + len(body)}\r\n\r\n"
        )
        return cls(lines.encode() + text + body)


@dataclass
class Answer:
    """One answer.

    Attributes:
        number: Which call it answers.
        began: When it was sent or, with a schedule, when it was due.
        ended: When the last byte arrived.
        status: The HTTP status.
        body: What was answered.
    """

    number: int
    began: float
    ended: float
    status: int
    body: bytes


@dataclass
class _Client:
    socket: socket.socket
    unsent: memoryview = field(default_factory=lambda: memoryview(b""))
    received: bytearray = field(default_factory=bytearray)
    number: int = -1
    began: float = 0.0


class Load:
    """Connections that are kept open, each with one call at a time."""

    def __init__(self, port: int, clients: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._clients = []
        for _ in range(clients):
            sock = socket.create_connection(("127.0.0.1", port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
            client = _Client(sock)
            self._selector.register(sock, selectors.EVENT_READ, client)
            self._clients.append(client)

    def closed_loop(self, calls: Sequence[Call], count: int) -> Iterator[Answer]:
        """Send `count` calls, each client its next one as soon as it has an answer."""
        for number in range(min(count, len(self._clients))):
            self._send(self._clients[number], number, calls, time.perf_counter())
        sent = min(count, len(self._clients))
        for _ in range(count):
            answer, client = self._next(None)
            if sent < count:
                self._send(client, sent, calls, time.perf_counter())
                sent += 1
            yield answer

    def by_schedule(self, calls: Sequence[Call], due: Sequence[float]) -> Iterator[Answer]:
        """Send each call when it is due, in seconds from now; what waits for a client waits long.

        The wait for a free connection counts: a service that falls behind must show it.
        """
        begin = time.perf_counter()
        idle = list(self._clients)
        waiting = [(at, number) for number, at in enumerate(due)]
        heapq.heapify(waiting)
        left = len(due)
        while left:
            now = time.perf_counter() - begin
            while waiting and idle and waiting[0][0] <= now:
                at, number = heapq.heappop(waiting)
                self._send(idle.pop(), number, calls, begin + at)
            limit = max(0.0, waiting[0][0] - now) if waiting and idle else None
            for answer, client in self._ready(limit):
                idle.append(client)
                left -= 1
                yield answer

    def close(self) -> None:
        """Close the connections, so that the server may stop."""
        for client in self._clients:
            client.socket.close()
        self._selector.close()

    def _next(self, limit_s: float | None) -> tuple[Answer, _Client]:
        if not hasattr(self, "_pending"):
            self._pending: list[tuple[Answer, _Client]] = []
        while not self._pending:
            self._pending = list(self._ready(limit_s))[::-1]
        return self._pending.pop()

    def _ready(self, limit_s: float | None) -> Iterator[tuple[Answer, _Client]]:
        for key, mask in self._selector.select(limit_s):
            client = key.data
            if mask & selectors.EVENT_WRITE:
                self._flush(client)
            if mask & selectors.EVENT_READ and (answer := self._receive(client)) is not None:
                yield answer, client

    def _send(self, client: _Client, number: int, calls: Sequence[Call], began: float) -> None:
        client.number, client.began = number, began
        client.unsent = memoryview(calls[number % len(calls)].data)
        self._flush(client)

    def _flush(self, client: _Client) -> None:
        while client.unsent:
            try:
                sent = client.socket.send(client.unsent)
            except BlockingIOError:
                self._selector.modify(
                    client.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, client
                )
                return
            client.unsent = client.unsent[sent:]
        self._selector.modify(client.socket, selectors.EVENT_READ, client)

    def _receive(self, client: _Client) -> Answer | None:
        try:
            data = client.socket.recv(_CHUNK)
        except BlockingIOError:
            return None
        if not data:
            raise ConnectionError("the server closed the connection")
        client.received += data
        end = client.received.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(client.received[:end]).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        if len(client.received) < end + 4 + length:
            return None
        body = bytes(client.received[end + 4 : end + 4 + length])
        client.received.clear()
        status = int(head.split()[1])
        return Answer(client.number, client.began, time.perf_counter(), status, body)
