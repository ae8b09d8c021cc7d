"""Frames of videos as a feed: decoders write into shared memory, the pipeline takes what is ready.

    decoder of this video ──┐                       ┌─▶ take: items, in order
    decoder of the next one ┼─▶ messages ─▶ videos ──┤
    (or of each live source)┘                       └─◀ used, settled: memory is free again
            ▲───────────────── room for frames ◀── arena ◀──┘

Runs in the supervisor's thread and never waits. Files are taken one after another, the next one
being decoded ahead; they get no room, and so wait, while the pipeline has no time. Live sources
come as they arrive; the oldest frames of one that is ahead of the pipeline are dropped.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gepipe.io.frames import FAILED
from gepipe.io.source import Entry
from gepipe.io.videos import VideoFiles
from gepipe.runtime.arena import Arena
from gepipe.runtime.feed import Feed, Portion
from gepipe.runtime.limits import told
from gepipe.video.crew import DecoderCrew
from gepipe.video.frame import Frame
from gepipe.video.lentframes import LentFrames
from gepipe.video.openvideos import OpenVideos
from gepipe.video.supply import Supply
from gepipe.video.videostate import Ready, VideoState, too_large

if TYPE_CHECKING:
    from gepipe.runtime.events import Outcome
    from gepipe.video.progress import VideoProgress

_TICK_S: Final = 1.0


class VideoFeed(Feed):
    """See the module."""

    def __init__(  # noqa: PLR0913 - each is a fact of the run
        self,
        source: VideoFiles,
        videos: Iterator[Entry],
        *,
        batch: int,
        count: int | None = None,
        first: int = 0,
        limit: int | None = None,
        keep: bool = False,
        window: int = 0,
        least: int = 1,
    ) -> None:
        """Start decoding.

        Args:
            source: The options.
            videos: The videos.
            batch: Rows of a batch.
            count: How many videos there are.
            first: Index of the first item to give; those before are decoded and passed over.
            limit: Index behind the last item to give.
            keep: Whether a frame is needed until its outcome is settled, and not only by pre.
            window: With `keep`, how many items may be between the two.
            least: How many frames of a video there must be room for, or it fails.
        """
        self.total: int | None = None
        self.live = not source.finite
        self._count = count
        self._batch = batch
        self._keep = keep
        self._seq = first
        self._limit = limit
        self._least = least
        self._held: dict[int, tuple[VideoState, Ready]] = {}  # by seq; their memory is not free
        self._filling: list[int] = []  # seqs of the part-filled batch
        self._seal = self._ended = False
        self._arena = Arena(source.memory_nbytes)
        self.memory = self._arena.memory
        with told("cannot decode videos"):
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._poll = select.epoll()
        self._poll.register(self._bell, select.EPOLLIN)
        self._lent = LentFrames(self._poll)
        self._crew = DecoderCrew(self._poll, self.memory)
        ahead, most = max(8, 2 * batch), max(32, 6 * batch) + (window if keep else 0)
        self._open_videos = OpenVideos(
            source, videos, self._crew, self._arena, skip=first, most=ahead // 2
        )
        self._rooms = Supply(self._open_videos, self._crew, self._arena, ahead=ahead, most=most)
        # In a chain, outcomes are settled in another thread than frames are taken in.
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._clock = threading.Thread(target=self._tick, name="gepipe video clock", daemon=True)
        self._clock.start()
        try:
            self._supply()
        except BaseException:
            self.close()
            raise

    # --- what the supervisor calls ----------------------------------------------------------------

    def take(self, count: int) -> Portion:
        """Return up to `count` frames, and failures of videos, without waiting."""
        with self._lock:
            return self._take(count)

    def _take(self, count: int) -> Portion:
        if count == self._batch:
            self._filling.clear()
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        for offset in self._lent.returned():
            self._arena.free(offset)
        for video in self._open_videos.pump():
            if self._least * video.nbytes > self._arena.memory.nbytes:
                self._refuse(video)
        entries: list[Entry] = []
        while len(entries) < count and not self._ended:
            if self._limit is not None and self._seq >= self._limit:
                self._ended = True
            elif (entry := self._next()) is not None:
                entries.append(entry)
            else:
                break
        seal, self._seal = self._seal, False
        if self._ended:
            self._crew.close()
        else:
            self._supply()
        if seal or len(entries) == count:
            self._filling.clear()
        return Portion(entries, self._ended, seal)

    def used(self, seqs: Sequence[int]) -> None:
        """Free the memory of frames that pre is done with."""
        if not self._keep:
            self._let_go(seqs)

    def settled(self, outcomes: Sequence[Outcome]) -> None:
        """Free the memory of frames whose outcome is out."""
        self._let_go([outcome.index for outcome in outcomes])

    def fileno(self) -> int:
        """Readable when a decoder has said something, and now and then."""
        return self._poll.fileno()

    def close(self) -> None:
        """End the decoders. Closing twice is harmless."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._clock.join()  # it writes to a descriptor whose number somebody else may get
        with self._lock:
            self._close()

    def _close(self) -> None:
        self._crew.close()
        self._poll.close()
        os.close(self._bell)
        self._lent.close()
        with suppress(BufferError):
            self._arena.close()

    # --- for a sink that keeps pictures -----------------------------------------------------------

    def lend(self, gone: Callable[[], Exception]) -> int:
        """Return the writing end of the pipe that takes offsets of frames that are free again.

        It is the caller's to close.

        Args:
            gone: Called when nobody holds that end any more although the run goes on, so that
                frames will never come back; `take` raises what it returns.
        """
        return self._lent.open(gone)

    def keep_frame(self, index: int) -> Frame | None:
        """Take over the memory of an item that is being emitted; None if it has no picture."""
        with self._lock:
            if index not in self._held:
                return None
            video, ready = self._held.pop(index)
            self._lent.count += 1
        return Frame(ready.offset, ready.height, ready.width, ready.time, video.number)

    # --- for people -------------------------------------------------------------------------------

    def progress(self) -> VideoProgress:
        """Return how far the feed is. Safe in any thread."""
        return self._open_videos.progress(self._count)

    # --- items ------------------------------------------------------------------------------------

    def _next(self) -> Entry | None:
        """Return the next item, None if there is none now. Sets `_ended` at the end."""
        videos = self._open_videos
        while not videos.are_over:
            video = videos.turn()
            if video is None:
                if len(videos):
                    return None
                videos.begin()
                continue
            if video.ready:
                return self._frame(video, video.ready.popleft())
            trouble, video.trouble = video.trouble, None
            if trouble is not None:
                if not videos.skip:
                    self._seq += 1
                    return Entry(video.source, (FAILED, *trouble))
                videos.skip -= 1
            videos.remove(video)
            videos.begin()
        self._ended = True
        return None

    def _frame(self, video: VideoState, ready: Ready) -> Entry:
        seq, self._seq = self._seq, self._seq + 1
        self._held[seq] = (video, ready)
        self._filling.append(seq)
        _, offset, height, width, frame, time_s, position = ready
        return Entry(
            f"{video.source}#frame={frame}",
            (offset, height, width, time_s, video.number, frame, position, video.source),
        )

    def _let_go(self, seqs: Sequence[int]) -> None:
        with self._lock:
            held = [self._held.pop(seq) for seq in seqs if seq in self._held]
            for _, ready in held:
                self._arena.free(ready.offset)
            if held and not self._ended and not self._closing.is_set():
                self._supply()

    # --- memory -----------------------------------------------------------------------------------

    def _supply(self) -> None:
        """Give decoders room for frames."""
        self._open_videos.begin()
        if (video := self._rooms.give()) is not None:
            self._relieve(video)

    def _relieve(self, video: VideoState) -> None:
        """See to it that a video whose next frame finds no room gets some in the end."""
        if self._lent.count or set(self._held) - (set(self._filling) if self._keep else set()):
            return  # memory comes back by itself
        others = [
            each for each in self._open_videos if each is not video and (each.rooms or each.ready)
        ]
        if others and not self.live:
            for other in others:  # decoded again when its turn comes
                self._open_videos.rewind(other)
            self._supply()
        elif self._held:
            self._seal = True  # what holds the memory is free only once its batch is out
            self._ring()
        elif not self._arena.used:
            self._refuse(video)

    def _refuse(self, video: VideoState) -> None:
        """Give up a video whose frames are too large."""
        height, width = video.size or (0, 0)
        most = self._arena.memory.nbytes
        self._open_videos.refuse(video, too_large(video.source, height, width, most, self._least))
        self._ring()

    def _ring(self) -> None:
        os.eventfd_write(self._bell, 1)

    def _tick(self) -> None:
        """Have the feed look after its decoders now and then. In a thread of its own."""
        while not self._closing.wait(_TICK_S):
            self._ring()
