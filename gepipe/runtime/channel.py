"""Messages between the supervisor and one worker, over one stream socket each.

    supervisor ──▶ tickets, shared memory (file descriptors) ──▶ worker
    supervisor ◀── ready, outcomes ◀── worker

A message is a tuple of plain values, written with `marshal`: fast, and unlike pickle it can neither
run code nor name a class. Both ends are always the same interpreter. A frame is a length (4 bytes,
little-endian) and that many bytes. The supervisor's end never blocks, so neither a large message
nor a worker that was stopped in the middle of one can hold up the others.
"""

from __future__ import annotations

import array
import marshal
import os
import socket
import struct
from collections import deque
from typing import Any, Final

_LENGTH: Final = struct.Struct("<I")
_CHUNK: Final = 1 << 16
_MAX_FDS: Final = 8
_FDS_SPACE: Final = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)

Message = tuple[Any, ...]


def encode(message: Message) -> bytes:
    """Write one frame. Raises `ValueError` if the message holds more than plain values."""
    body = marshal.dumps(message)
    return _LENGTH.pack(len(body)) + body


class _Frames:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        if not self._buffer and len(data) >= 4 and len(data) == 4 + _LENGTH.unpack_from(data)[0]:
            return [marshal.loads(memoryview(data)[4:])]  # the common case: one whole frame
        buffer = self._buffer
        buffer += data
        messages: list[Message] = []
        start = 0
        while len(buffer) - start >= 4:
            end = start + 4 + _LENGTH.unpack_from(buffer, start)[0]
            if len(buffer) < end:
                break
            messages.append(marshal.loads(bytes(buffer[start + 4 : end])))
            start = end
        del buffer[:start]
        return messages


class Channel:
    """The supervisor's end: never blocks.

    Attributes:
        ended: Whether the worker closed its end, which it does by dying at the latest.
        backlog: Whether there are bytes that the socket did not take yet; call `flush` when the
            socket becomes writable.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._frames = _Frames()
        self._unsent: deque[memoryview] = deque()
        self.ended = False

    def fileno(self) -> int:
        """The socket's descriptor, for a selector."""
        return self._socket.fileno()

    @property
    def backlog(self) -> bool:
        """Whether bytes wait for the socket to become writable."""
        return bool(self._unsent)

    def send(self, message: Message) -> None:
        """Send a message, or queue what the socket does not take at once."""
        self._unsent.append(memoryview(encode(message)))
        self.flush()

    def send_shared(self, message: Message, fds: list[int]) -> None:
        """Send a message together with file descriptors, which the worker receives as its own."""
        frame = encode(message)
        if self._unsent:
            raise BlockingIOError("shared memory must be handed over before any backlog")
        try:
            sent = socket.send_fds(self._socket, [frame], fds)
        except ConnectionError:  # the worker died while it waited: its sentinel tells the rest
            self.ended = True
            return
        if sent < len(frame):
            self._unsent.append(memoryview(frame)[sent:])

    def flush(self) -> None:
        """Send what the socket takes now of the bytes that wait."""
        while self._unsent:
            view = self._unsent[0]
            try:
                sent = self._socket.send(view)
            except BlockingIOError:
                return
            except OSError:  # the worker is gone: its sentinel tells the rest
                self._unsent.clear()
                self.ended = True
                return
            if sent < len(view):
                self._unsent[0] = view[sent:]
            else:
                self._unsent.popleft()

    def receive(self) -> list[Message]:
        """Return the messages that have arrived whole. Sets `ended` at the end of the stream."""
        messages: list[Message] = []
        while True:
            try:
                data = self._socket.recv(_CHUNK)
            except BlockingIOError:
                return messages
            except OSError:
                data = b""
            if not data:
                self.ended = True
                return messages
            messages += self._frames.feed(data)
            if len(data) < _CHUNK:
                return messages

    def close(self) -> None:
        """Close the socket: the worker reads the end of its stream and stops."""
        self._unsent.clear()
        self._socket.close()


class WorkerChannel:
    """The worker's end: blocks."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self._socket = sock
        self._frames = _Frames()
        self._ready: deque[Message] = deque()
        self._fds: list[int] = []

    def receive(self) -> Message | None:
        """Wait for a message; None when the supervisor closed its end or died."""
        while not self._ready:
            if not self._read():
                return None
        return self._ready.popleft()

    def pending(self) -> bool:
        """Whether `receive` would return at once."""
        while not self._ready:
            try:
                if not self._read(socket.MSG_DONTWAIT):
                    return True  # the end of the stream: receive() will say so
            except BlockingIOError:
                return False
        return True

    def _read(self, flags: int = 0) -> bool:
        try:
            # recvmsg, since a plain recv would drop descriptors that come with the bytes.
            data, ancillary, _, _ = self._socket.recvmsg(_CHUNK, _FDS_SPACE, flags)
        except ConnectionError:
            return False
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
                self._fds += fds
        self._ready += self._frames.feed(data)
        return bool(data)

    def take_fds(self) -> list[int]:
        """Return the descriptors received so far; they are the caller's to close."""
        fds, self._fds = self._fds, []
        return fds

    def send(self, message: Message) -> bool:
        """Send a message; False when the supervisor is gone."""
        try:
            self._socket.sendall(encode(message))
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close the socket and any descriptor nobody took."""
        for fd in self.take_fds():
            os.close(fd)
        self._socket.close()
