"""The process of a decoder: opens one video after another and writes frames where it is told.

    feed ── ("memory", nbytes) + memfd, ("open", …), ("room", …), ("close",) ──▶ decoder
    feed ◀── ("opened", …), ("size", …), ("frame", …), ("passed", …), ("ended" | "failed", …) ──┘

Every message but the first names the opening that it belongs to, so that what crosses another on
its way is known to be of old. Room is given for frames of one size; at a frame of another size the
decoder asks anew, and forgets the room that it had.
"""

from __future__ import annotations

import gc
import os
import select
import socket
import time
from collections import deque
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

from gepipe.errors import ItemError
from gepipe.io.videos import is_camera, without_password
from gepipe.runtime import tuning
from gepipe.runtime.channel import WorkerChannel
from gepipe.runtime.memory import SharedBuffer
from gepipe.video.address import is_pipe
from gepipe.video.order import Order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gepipe.video.camera import Camera
    from gepipe.video.decoding import Decoded
    from gepipe.video.selection import Selection
    from gepipe.video.stream import VideoStream

#: How often a decoder that has no frame to give says that it is alive.
_SIGN_S: Final = 1.0
_WAIT_MAX_S: Final = 30.0


class _Closed(Exception):  # noqa: N818 - not an error
    """The feed wants no more of this video."""


def main(sock: socket.socket) -> NoReturn:
    """Run a decoder until the other end of its channel closes. The target of its process."""
    tuning.begin_process({})
    _Decoder(sock).serve()


class _Decoder:
    def __init__(self, sock: socket.socket) -> None:
        from gepipe.video.framewriter import FrameWriter

        self._channel = WorkerChannel(sock)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._writer = FrameWriter()
        self._memory: NDArray[Any] | None = None
        self._opening = -1
        self._size: tuple[int, int] | None = None
        self._request = -1  # number of the last request for room
        self._room: deque[int] = deque()
        self._next: tuple[int, Order] | None = None
        self._sign_due = 0.0
        self._passed: tuple[int, int] = (0, -1)
        gc.freeze()  # libraries are here for good, and need not be looked at after each video

    def serve(self) -> NoReturn:
        """Do what the feed asks for, one video after another."""
        while True:
            while self._next is None:
                with suppress(_Closed):
                    self._listen(wait_s=None)
            (self._opening, order), self._next = self._next, None
            self._size, self._passed = None, (0, order.behind)
            self._room.clear()
            with suppress(_Closed):
                self._decode(order)
            gc.collect()  # PyAV's objects of a video form circles, which hold its codec's buffers

    # --- the channel ------------------------------------------------------------------------------

    def _say(self, kind: str, *values: Any) -> None:
        if not self._channel.send((kind, self._opening, *values)):
            os._exit(0)

    def _listen(self, wait_s: float | None = 0.0) -> None:
        """Take messages: those that are there, or the next one within `wait_s`.

        Raises:
            _Closed: The feed wants no more of this video.
        """
        if wait_s is not None and not (
            self._channel.pending() or (wait_s and self._poll.poll(1000 * wait_s))
        ):
            return
        message = self._channel.receive()
        while message is not None:
            self._obey(message)
            if not self._channel.pending():
                return
            message = self._channel.receive()
        os._exit(0)

    def _obey(self, message: tuple[Any, ...]) -> None:
        match message:
            case ("memory", nbytes):
                import numpy as np

                (fd,) = self._channel.take_fds()
                self._memory = np.frombuffer(SharedBuffer(fd, nbytes).map, np.uint8)
            case ("open", opening, order):
                self._next = (opening, Order(*order))
                if self._opening >= 0:
                    raise _Closed
            case ("room", opening, request, offset):
                if (opening, request) == (self._opening, self._request):
                    self._room.append(offset)
            case ("close", opening):
                if opening == self._opening:
                    raise _Closed

    # --- one video --------------------------------------------------------------------------------

    def _decode(self, order: Order) -> None:
        self._sign_due = time.monotonic() + _SIGN_S
        try:
            decoded, note = self._live(order) if order.live else self._file(order)
        except ItemError as error:
            self._flush_passed()
            self._say("failed", str(error.kind), str(error))
            return
        except _Closed:
            raise
        except Exception as error:  # noqa: BLE001 - a video that PyAV itself stumbles over
            self._flush_passed()
            text = f"{os.fsdecode(order.path)!r}: {type(error).__name__}: {error}"
            self._say("failed", "decoder", without_password(text))
            return
        self._flush_passed()
        self._say("ended", decoded, note)

    def _file(self, order: Order) -> tuple[int, str]:
        selection = order.selection()
        with closing(self._stream(order)) as stream:
            self._opened(stream, selection)
            left = order.skip
            for each in stream.frames(selection):
                self._sign()
                if each is None or each.frame <= order.behind:
                    continue
                if left:
                    left -= 1
                    self._passed = (self._passed[0] + 1, each.frame)
                    continue
                self._flush_passed()
                self._give(each, each.frame, each.time)
            return stream.decoded, stream.damage.text(stream.decoded)

    def _live(self, order: Order) -> tuple[int, str]:
        """Give frames as they come, over lost connections.

        Raises:
            ItemError: The source is given up.
        """
        selection = order.selection()
        number, fruitless = order.behind + 1, 0
        began, last_s = time.monotonic() - order.since_s, order.since_s
        while True:
            error = ended = ItemError("connection", "the stream ended")
            try:
                with closing(self._stream(order)) as stream:
                    self._opened(stream, selection)
                    shift_s: float | None = None
                    for each in stream.frames():
                        self._sign()
                        if each is None:
                            continue
                        fruitless = 0
                        if shift_s is None:  # time goes on over a gap, whatever the sender counts
                            elapsed_s = time.monotonic() - began if number else 0.0
                            shift_s = max(last_s, elapsed_s) - each.time
                        time_s = last_s = round(each.time + shift_s, 6)
                        if selection.is_over(time_s):
                            return number, ""
                        if selection.takes(time_s):
                            self._give_live(each, number, time_s)
                        number += 1
            except ItemError as failed:
                if failed.kind == "too_large":
                    raise
                error = failed
            if is_pipe(order.path):  # its writer has gone, and nobody sends anew
                if number == order.behind + 1:
                    raise error
                return number, "" if error is ended else str(error)
            if fruitless >= order.reconnect:
                name = without_password(os.fsdecode(order.path))
                raise ItemError(
                    error.kind if not number else "connection",
                    f"{name!r}: given up behind {number:,} frames: {error}; "
                    f"tried {fruitless + 1} times",
                )
            wait_s = min(_WAIT_MAX_S, 0.5 * 2**fruitless)
            fruitless += 1
            self._say("lost", str(error), wait_s)
            self._pause(wait_s)

    def _stream(self, order: Order) -> VideoStream | Camera:
        assert self._memory is not None
        if is_camera(order.path):
            from gepipe.video.camera import Camera

            return Camera(order.path)
        from gepipe.video.stream import VideoStream

        return VideoStream(
            order.path,
            threads=order.threads,
            timeout_s=order.timeout_s,
            live=order.live,
            most_bytes=self._memory.nbytes,
        )

    def _opened(self, stream: VideoStream | Camera, selection: Selection) -> None:
        facts = stream.facts
        self._say("opened", facts.rate, selection.estimate(facts.frames, facts.rate), facts.codec)

    def _pause(self, wait_s: float) -> None:
        due = time.monotonic() + wait_s
        while (left := due - time.monotonic()) > 0:
            self._listen(min(left, _SIGN_S))
            self._sign()

    def _give(self, each: Decoded, number: int, time_s: float) -> None:
        """Write a frame, once there is room for it."""
        size = self._settle(each)
        self._listen()
        while not self._room:
            self._listen(wait_s=None)
        self._write(each, size, number, time_s)

    def _give_live(self, each: Decoded, number: int, time_s: float) -> None:
        """Write a frame, or drop it where there is no room."""
        size = self._settle(each)
        self._listen()
        if self._room:
            self._write(each, size, number, time_s)
        else:
            self._say("dropped", 1)

    def _settle(self, each: Decoded) -> tuple[int, int]:
        """Return the size of a frame; ask for room where it is another one than before."""
        size = self._writer.size(each.picture)
        if size != self._size:
            self._size = size
            self._request += 1
            self._room.clear()
            self._say("size", self._request, *size)
        return size

    def _write(self, each: Decoded, size: tuple[int, int], number: int, time_s: float) -> None:
        assert self._memory is not None
        offset = self._room.popleft()
        height, width = size
        pixels = self._memory[offset : offset + height * width * 3].reshape(height, width, 3)
        self._writer.write(each.picture, pixels)
        self._say("frame", self._request, offset, height, width, number, time_s)

    # --- signs of life ----------------------------------------------------------------------------

    def _sign(self) -> None:
        """Say now and then that this process is alive, and how far it is."""
        now = time.monotonic()
        if now >= self._sign_due:
            self._sign_due = now + _SIGN_S
            self._listen()
            if not self._flush_passed():
                self._say("passed", 0, -1)

    def _flush_passed(self) -> bool:
        count, frame = self._passed
        if count:
            self._say("passed", count, frame)
            self._passed = (0, frame)
        return bool(count)
