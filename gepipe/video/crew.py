"""The decoder processes of a feed: started, given work, heard and replaced."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from gepipe.runtime.process import ChildProcess
from gepipe.video import decoder

if TYPE_CHECKING:
    from gepipe.runtime.memory import SharedBuffer
    from gepipe.video.order import Order
    from gepipe.video.videostate import VideoState

#: How long a process may take to end whose end of the channel is closed.
_ENDING_S: Final = 1.0


class DecoderCrew:
    """Processes, each at work on one video or idle."""

    def __init__(self, poll: select.epoll, memory: SharedBuffer) -> None:
        """Have none yet.

        Args:
            poll: Where their channels are registered.
            memory: What they write frames into.
        """
        self._poll = poll
        self._memory = memory
        self._at_work: dict[int, tuple[ChildProcess, VideoState]] = {}  # by opening
        self._idle: list[ChildProcess] = []
        self._openings = self._started = 0
        self._lost: list[tuple[VideoState, str]] = []

    def open(self, video: VideoState, order: Order) -> None:
        """Have a decoder begin a video, or go on with it.

        Raises:
            WorkerStartError: No process can be started.
        """
        process = self._idle.pop() if self._idle else self._start()
        self._openings += 1
        video.opening = self._openings
        video.heard = time.monotonic()
        self._at_work[video.opening] = (process, video)
        process.channel.send(("open", video.opening, tuple(order)))

    def give(self, video: VideoState, offset: int) -> None:
        """Give the decoder of a video room for a frame."""
        process, _ = self._at_work[video.opening]
        process.channel.send(("room", video.opening, video.request, offset))

    def messages(self) -> Iterator[tuple[VideoState, tuple[Any, ...]]]:
        """Yield what decoders have said of the videos that they are at work on."""
        for opening, (process, video) in list(self._at_work.items()):
            process.channel.flush()
            for kind, named, *values in process.channel.receive():
                if named != opening or opening not in self._at_work:
                    continue
                if kind in ("ended", "failed"):
                    del self._at_work[opening]
                    self._idle.append(process)
                yield video, (kind, *values)
            if process.channel.ended and opening in self._at_work:
                del self._at_work[opening]
                process.process.join(_ENDING_S)  # so that it is told how it ended by itself
                self._lost.append((video, self._end(process)))
        for process in list(self._idle):
            if process.channel.receive() or process.channel.ended:  # killed while it had no work
                self._idle.remove(process)
                self._end(process)

    def lost(self, timeout_s: Callable[[VideoState], float]) -> Iterator[tuple[VideoState, str]]:
        """Yield videos whose decoder ended, or hung and was ended, and how.

        Args:
            timeout_s: How long the decoder of a video may be silent while it has room.
        """
        now = time.monotonic()
        for opening, (process, video) in list(self._at_work.items()):
            limit_s = timeout_s(video)
            if not video.is_waiting and now - video.heard > limit_s:
                del self._at_work[opening]
                self._end(process)
                self._lost.append((video, f"was silent for {limit_s:g} s and was ended"))
        lost, self._lost = self._lost, []
        yield from lost

    def dismiss(self, video: VideoState) -> None:
        """End the decoder of a video, so that it writes no more."""
        process, _ = self._at_work.pop(video.opening, (None, None))
        if process is not None:
            self._end(process)

    def pids(self) -> list[int]:
        """Return the processes at work, in the order in which they began."""
        return [process.process.pid for process, _ in self._at_work.values()]

    def close(self) -> None:
        """End all. Closing twice is harmless."""
        for process in (*(process for process, _ in self._at_work.values()), *self._idle):
            self._end(process)
        self._at_work.clear()
        self._idle.clear()

    def _start(self) -> ChildProcess:
        process = ChildProcess(f"decoder {self._started}", decoder.main, ())
        self._started += 1
        process.channel.send_shared(("memory", self._memory.nbytes), [self._memory.fd])
        self._poll.register(process.channel.fileno(), select.EPOLLIN)
        return process

    def _end(self, process: ChildProcess) -> str:
        with suppress(OSError, ValueError):
            self._poll.unregister(process.channel.fileno())
        if process.process.exitcode is None:
            process.kill()
        return process.reap()
