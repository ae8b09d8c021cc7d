"""Frames of videos as a feed: decoders write into shared memory, the pipeline takes what is ready.

    decoder of this video ──┐                       ┌─▶ take: items, in order
    decoder of the next one ┼─▶ messages ─▶ reels ──┤
    (or of each live source)┘                       └─◀ used, settled: memory is free again
            ▲───────────────── room for frames ◀── arena ◀──┘

Runs in the supervisor's thread and never waits. Files are taken one after another, the next one
being decoded ahead; they get no room, and so wait, while the pipeline has no time. Live sources
come as they arrive; the oldest frames of one that is ahead of the pipeline are dropped.
"""

from __future__ import annotations

import logging
import math
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gepipe.io.frames import FAILED
from gepipe.io.source import Entry
from gepipe.io.videos import MEMORY_MAX, MEMORY_SHARE, VideoFiles
from gepipe.machine import available_memory
from gepipe.runtime.feed import Feed, Portion
from gepipe.runtime.limits import told
from gepipe.video.arena import Arena
from gepipe.video.crew import DecoderCrew
from gepipe.video.decoder import Order
from gepipe.video.frame import Frame
from gepipe.video.reel import Ready, Reel

if TYPE_CHECKING:
    from gepipe.runtime.events import Outcome

log = logging.getLogger(__name__)

#: Frames of the next file that are decoded ahead, and the share of the memory that they may take.
_NEXT_AHEAD: Final = 4
_NEXT_SHARE: Final = 4
_TICK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class VideoProgress:
    """How far a feed is. A snapshot.

    Attributes:
        begun: Videos that were begun.
        videos: Videos in all, or None if that is not known.
        source: The one that frames are taken of.
        frames: Frames taken of it.
        estimate: About how many there are, 0 for no idea. Not to be trusted.
        dropped: Frames of live sources that there was no time for, in all.
    """

    begun: int
    videos: int | None
    source: str
    frames: int
    estimate: int
    dropped: int


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
        self._source = source
        self._videos = enumerate(videos)
        self._count = count
        self._batch = batch
        self._keep = keep
        self._skip = first  # items still to be passed over
        self._seq = first
        self._limit = limit
        self._ahead = max(8, 2 * batch)
        self._least = least
        self._most = max(32, 6 * batch) + (window if keep else 0)
        self._reels: deque[Reel] = deque()
        self._more = True  # whether there are videos that were not begun
        self._begun = self._dropped = self._arrivals = 0
        self._held: dict[int, tuple[Reel, Ready]] = {}  # by seq; their memory is not free
        self._filling: list[int] = []  # seqs of the part-filled batch
        self._seal = self._ended = False
        share = available_memory() // MEMORY_SHARE
        wanted = source.memory if isinstance(source.memory, int) else min(MEMORY_MAX, share)
        self._arena = Arena(wanted)
        self.memory = self._arena.memory
        with told("cannot decode videos"):
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._poll = select.epoll()
        self._poll.register(self._bell, select.EPOLLIN)
        self._lent_fd = -1
        self._freed = b""
        self._lent = 0  # frames that a sink holds
        self._crew = DecoderCrew(self._poll, self.memory)
        # In a chain, outcomes are settled in another thread than frames are taken in.
        self._lock = threading.RLock()
        self._closing = threading.Event()
        threading.Thread(target=self._tick, name="gepipe video clock", daemon=True).start()
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
        self._pump()
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
        with self._lock:
            self._close()

    def _close(self) -> None:
        self._crew.close()
        self._poll.close()
        os.close(self._bell)
        if self._lent_fd >= 0:
            os.close(self._lent_fd)
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
        self._gone = gone
        self._lent_fd, fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._lent_fd, False)
        self._poll.register(self._lent_fd, select.EPOLLIN)
        return fd

    def keep_frame(self, index: int) -> Frame | None:
        """Take over the memory of an item that is being emitted; None if it has no picture."""
        with self._lock:
            if index not in self._held:
                return None
            reel, ready = self._held.pop(index)
            self._lent += 1
        return Frame(ready.offset, ready.height, ready.width, ready.time, reel.number)

    def _take_back(self) -> None:
        """Free what came out of the pipe. Raises the reason if whoever had the frames is gone."""
        while self._lent_fd >= 0:
            try:
                data = os.read(self._lent_fd, 4096)
            except BlockingIOError:
                return
            if not data:
                raise self._gone()
            data = self._freed + data
            whole = len(data) - len(data) % 8
            self._freed = data[whole:]
            for offset in memoryview(data)[:whole].cast("q"):
                self._arena.free(offset)
                self._lent -= 1

    # --- for people -------------------------------------------------------------------------------

    def progress(self) -> VideoProgress:
        """Return how far the feed is. Safe in any thread."""
        reels = tuple(self._reels.copy())
        reel = reels[0] if reels else None
        return VideoProgress(
            begun=self._begun - (len(reels) - 1 if reels and not self.live else 0),
            videos=self._count,
            source=reel.source if reel else "",
            frames=reel.position - len(reel.ready) if reel else 0,
            estimate=reel.estimate if reel else 0,
            dropped=self._dropped,
        )

    # --- videos -----------------------------------------------------------------------------------

    def _begin(self) -> Reel | None:
        """Begin the next video; None if there is none."""
        following = next(self._videos, None)
        if following is None:
            self._more = False
            return None
        number, (source, path, *_) = following
        reel = Reel(number, source, path, self._source.is_live(path), skip=self._skip)
        self._reels.append(reel)
        self._begun += 1
        self._open(reel)
        return reel

    def _open(self, reel: Reel) -> None:
        source = self._source
        order = Order(
            reel.path,
            reel.live,
            reel.behind,
            reel.skip,
            source.every,
            source.fps,
            float(source.start),
            math.inf if source.stop is None else float(source.stop),
            source.threads,
            float(source.timeout),
            source.reconnect,
        )
        self._crew.open(reel, order)

    def _begin_more(self) -> None:
        """Have as many videos decoded as the order of frames allows."""
        while self._more:
            if self._skip and self._reels:
                return  # how many are to be passed over of the next one shows at this one's end
            if not self.live and len(self._reels) >= 2:
                return
            self._begin()

    # --- items ------------------------------------------------------------------------------------

    def _next(self) -> Entry | None:
        """Return the next item, None if there is none now. Sets `_ended` at the end."""
        while self._reels or self._more:
            reel = self._first_ready()
            if reel is None:
                self._begin_more()
                return None
            if reel.ready:
                return self._frame(reel, reel.ready.popleft())
            trouble, reel.trouble = reel.trouble, None
            if trouble is not None:
                if not self._skip:
                    self._seq += 1
                    return Entry(reel.source, (FAILED, *trouble))
                self._skip -= 1
            self._reels.remove(reel)
            self._begin_more()
        self._ended = True
        return None

    def _first_ready(self) -> Reel | None:
        """Return the video whose turn it is, if it has something to give or is over."""
        if not self.live:
            reel = self._reels[0] if self._reels else None
            return reel if reel is not None and (reel.ready or reel.over) else None
        done = next((reel for reel in self._reels if reel.over and not reel.ready), None)
        ready = [reel for reel in self._reels if reel.ready]
        return done or min(ready, key=lambda reel: reel.ready[0].arrival, default=None)

    def _frame(self, reel: Reel, ready: Ready) -> Entry:
        seq, self._seq = self._seq, self._seq + 1
        self._held[seq] = (reel, ready)
        self._filling.append(seq)
        _, offset, height, width, frame, time_s, position = ready
        return Entry(
            f"{reel.source}#frame={frame}",
            (offset, height, width, time_s, reel.number, frame, position, reel.source),
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
        self._begin_more()
        for place, reel in enumerate(list(self._reels)):
            if reel.over or reel.size is None:
                continue
            is_next = place > 0 and not self.live
            most = _NEXT_AHEAD if is_next else self._ahead
            had = bool(reel.rooms)
            while len(reel.rooms) + len(reel.ready) < most:
                offset = None
                if not self._is_full() and not (is_next and self._is_greedy(reel)):
                    offset = self._arena.allocate(reel.nbytes)
                if offset is None:
                    break
                reel.rooms.add(offset)
                self._crew.give(reel, offset)
            if reel.rooms and not had:
                reel.heard = time.monotonic()
            if not is_next and not reel.rooms and not reel.ready:
                self._relieve(reel)
                return

    def _is_full(self) -> bool:
        """Whether more frames in flight would only take memory, and the place in caches."""
        return len(self._arena) >= self._most * (len(self._reels) if self.live else 1)

    def _is_greedy(self, reel: Reel) -> bool:
        """Whether the next video would take more than its share of the memory."""
        mine = (len(reel.rooms) + len(reel.ready) + 1) * reel.nbytes
        return mine > self._arena.memory.nbytes // _NEXT_SHARE

    def _relieve(self, reel: Reel) -> None:
        """See to it that a video whose next frame finds no room gets some in the end."""
        if self._lent or set(self._held) - (set(self._filling) if self._keep else set()):
            return  # memory comes back by itself
        others = [each for each in self._reels if each is not reel and (each.rooms or each.ready)]
        if others and not self.live:
            for other in others:  # decoded again when its turn comes
                self._rewind(other)
            self._supply()
        elif self._held:
            self._seal = True  # what holds the memory is free only once its batch is out
            self._ring()
        elif not self._arena.used:
            self._refuse(reel)

    def _refuse(self, reel: Reel) -> None:
        """Give up a video whose frames are too large."""
        self._crew.dismiss(reel)
        height, width = reel.size or (0, 0)
        several = f"{self._least:,} of them" if self._least > 1 else "several of them"
        reel.fail(
            "too_large",
            f"{reel.source!r}: a frame of {width}x{height} pixels takes {reel.nbytes:,} bytes; "
            f"there are {self._arena.memory.nbytes:,} for frames; set memory of the source so that "
            f"there is room for {several}",
        )
        self._ring()

    def _rewind(self, reel: Reel) -> None:
        """Drop what was decoded ahead of a video, to begin it anew."""
        self._crew.dismiss(reel)
        self._forget_frames(reel)
        self._reels.remove(reel)
        again = Reel(reel.number, reel.source, reel.path, reel.live, skip=reel.skip)
        self._reels.append(again)
        self._open(again)

    def _forget_frames(self, reel: Reel) -> None:
        for offset in (*reel.rooms, *(ready.offset for ready in reel.ready)):
            self._arena.free(offset)
        reel.rooms.clear()
        reel.ready.clear()

    # --- decoders ---------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Take what decoders have said."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        self._take_back()
        for reel, message in self._crew.messages():
            self._obey(reel, message)
        for reel, cause in self._crew.lost(self._source_timeout):
            self._free_rooms(reel)
            if reel.crash(cause):
                log.warning("%s: its decoder %s; another one goes on", reel.source, cause)
                self._open(reel)

    def _source_timeout(self, reel: Reel) -> float:
        timeout_s = float(self._source.timeout)
        return 2 * timeout_s + 35.0 if reel.live else timeout_s

    def _obey(self, reel: Reel, message: tuple[object, ...]) -> None:
        reel.heard = time.monotonic()
        match message:
            case ("frame", int(request), int(offset), height, width, frame, time_s):
                del request
                self._arrivals += 1
                reel.arrive(self._arrivals, offset, height, width, frame, time_s)  # type: ignore[arg-type]
                if reel.live and len(reel.ready) > self._ahead // 2:
                    self._arena.free(reel.ready.popleft().offset)
                    self._drop(reel, 1)
            case ("size", int(request), int(height), int(width)):
                for offset in reel.ask(request, height, width):
                    self._arena.free(offset)
                if self._least * reel.nbytes > self._arena.memory.nbytes:
                    self._refuse(reel)
            case ("passed", int(count), int(frame)):
                self._skip -= count
                reel.pass_over(count, frame)
            case ("dropped", int(count)):
                self._drop(reel, count)
            case ("opened", _, int(estimate), _):
                reel.estimate = estimate
            case ("lost", str(text), float(wait_s)):
                log.warning("%s: %s; connecting again in %.3g s", reel.source, text, wait_s)
            case ("ended", int(decoded), str(note)):
                self._free_rooms(reel)
                reel.end(decoded, note)
            case ("failed", str(kind), str(text)):
                self._free_rooms(reel)
                reel.fail(kind, text)

    def _drop(self, reel: Reel, count: int) -> None:
        reel.dropped += count
        self._dropped += count

    def _free_rooms(self, reel: Reel) -> None:
        for offset in reel.rooms:
            self._arena.free(offset)
        reel.rooms.clear()

    def _ring(self) -> None:
        os.eventfd_write(self._bell, 1)

    def _tick(self) -> None:
        """Have the feed look after its decoders now and then. In a thread of its own."""
        while not self._closing.wait(_TICK_S):
            with suppress(OSError):  # closed meanwhile
                self._ring()
