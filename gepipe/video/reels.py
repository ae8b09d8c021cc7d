"""The videos of a feed that are being decoded, in the order in which their frames are taken."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gepipe.io.videos import is_address
from gepipe.video.crew import DecoderCrew
from gepipe.video.order import Order
from gepipe.video.progress import VideoProgress
from gepipe.video.reel import Reel

if TYPE_CHECKING:
    from gepipe.errors import ItemError
    from gepipe.io.source import Entry
    from gepipe.io.videos import VideoFiles
    from gepipe.video.arena import Arena

log = logging.getLogger(__name__)

#: Longer than any pause of a live source that is being connected anew.
_LIVE_SILENCE_S = 35.0


class Reels:
    """Files one after another, the next one ahead; of live sources all at once.

    Attributes:
        live: Whether sources come at their own pace.
        skip: Items that are still to be passed over.
    """

    def __init__(  # noqa: PLR0913 - what it works with
        self,
        source: VideoFiles,
        videos: Iterator[Entry],
        crew: DecoderCrew,
        arena: Arena,
        *,
        skip: int,
        most: int,
    ) -> None:
        """Begin nothing yet.

        Args:
            source: The options.
            videos: The videos.
            crew: The decoders.
            arena: Where frames lie.
            skip: Items to be passed over.
            most: Frames of a live source that may wait to be taken.
        """
        self.live = not source.finite
        self.skip = skip
        self._source = source
        self._videos = enumerate(videos)
        self._crew = crew
        self._arena = arena
        self._most = most
        self._reels: deque[Reel] = deque()
        self._more = True  # whether there are videos that were not begun
        self._begun = self._dropped = self._arrivals = 0

    def __iter__(self) -> Iterator[Reel]:
        return iter(self._reels.copy())

    def __len__(self) -> int:
        return len(self._reels)

    @property
    def are_over(self) -> bool:
        """Whether every video has been begun and removed."""
        return not self._reels and not self._more

    def begin(self) -> None:
        """Have as many videos decoded as the order of frames allows.

        Raises:
            WorkerStartError: A decoder cannot be started.
        """
        while self._more:
            if self.skip and self._reels:
                return  # how many are to be passed over of the next one shows at this one's end
            if not self.live and len(self._reels) >= 2:
                return
            following = next(self._videos, None)
            if following is None:
                self._more = False
                return
            number, (name, path, *_) = following
            self._begun += 1
            self._open(Reel(number, name, path, self._source.is_live(path), skip=self.skip))

    def turn(self) -> Reel | None:
        """Return the video whose turn it is, if it has something to give or is over."""
        if not self.live:
            reel = self._reels[0] if self._reels else None
            return reel if reel is not None and (reel.ready or reel.over) else None
        done = next((reel for reel in self._reels if reel.over and not reel.ready), None)
        ready = [reel for reel in self._reels if reel.ready]
        return done or min(ready, key=lambda reel: reel.ready[0].arrival, default=None)

    def remove(self, reel: Reel) -> None:
        """Forget a video that is over."""
        self._reels.remove(reel)

    def rewind(self, reel: Reel) -> None:
        """Drop what was decoded ahead of a video, to begin it anew."""
        self._crew.dismiss(reel)
        for offset in (*reel.rooms, *(ready.offset for ready in reel.ready)):
            self._arena.free(offset)
        self._reels.remove(reel)
        self._open(Reel(reel.number, reel.source, reel.path, reel.live, skip=reel.skip))

    def refuse(self, reel: Reel, error: ItemError) -> None:
        """Give a video up."""
        self._crew.dismiss(reel)
        self._free_rooms(reel)
        reel.fail(str(error.kind), str(error))

    def progress(self, count: int | None) -> VideoProgress:
        """Return how far they are. Safe in any thread.

        Args:
            count: How many videos there are.
        """
        reels = tuple(self._reels.copy())
        reel = reels[0] if reels else None
        return VideoProgress(
            begun=self._begun - (len(reels) - 1 if reels and not self.live else 0),
            videos=count,
            source=reel.source if reel else "",
            frames=reel.position - len(reel.ready) if reel else 0,
            estimate=reel.estimate if reel else 0,
            dropped=self._dropped,
        )

    def _open(self, reel: Reel) -> None:
        if reel not in self._reels:
            self._reels.append(reel)
        source = self._source
        order = Order(
            reel.path,
            reel.live,
            reel.behind,
            reel.time,
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

    # --- what decoders say ------------------------------------------------------------------------

    def pump(self) -> Iterator[Reel]:
        """Take what decoders have said; yield each video that tells the size of its frames.

        Raises:
            WorkerStartError: A decoder cannot be replaced.
        """
        for reel, message in self._crew.messages():
            self._obey(reel, message)
            if message[0] == "size":
                yield reel
        for reel, cause in self._crew.lost(self._silence):
            self._free_rooms(reel)
            if reel.crash(cause):
                log.warning("%s: its decoder %s; another one goes on", reel.source, cause)
                self._open(reel)

    def _silence(self, reel: Reel) -> float:
        timeout_s = float(self._source.timeout)
        if reel.live:
            return 2 * timeout_s + _LIVE_SILENCE_S
        # Where a network is in between, the decoder knows better what was waited for.
        return 2 * timeout_s if is_address(reel.path) else timeout_s

    def _obey(self, reel: Reel, message: tuple[Any, ...]) -> None:
        reel.heard = time.monotonic()
        match message:
            case ("frame", _, offset, height, width, frame, time_s):
                self._arrivals += 1
                reel.arrive(self._arrivals, offset, height, width, frame, time_s)
                if reel.live and len(reel.ready) > self._most:
                    self._arena.free(reel.ready.popleft().offset)
                    self._drop(reel, 1)
            case ("size", request, height, width):
                for offset in reel.ask(request, height, width):
                    self._arena.free(offset)
            case ("passed", count, frame):
                self.skip -= count
                reel.pass_over(count, frame)
            case ("dropped", count):
                self._drop(reel, count)
            case ("opened", _, estimate, _):
                reel.estimate = estimate
            case ("lost", text, wait_s):
                log.warning("%s: %s; connecting again in %.3g s", reel.source, text, wait_s)
            case ("ended", _, note):
                self._free_rooms(reel)
                reel.end(note)
            case ("failed", kind, text):
                self._free_rooms(reel)
                reel.fail(kind, text)

    def _drop(self, reel: Reel, count: int) -> None:
        reel.dropped += count
        self._dropped += count

    def _free_rooms(self, reel: Reel) -> None:
        for offset in reel.rooms:
            self._arena.free(offset)
        reel.rooms.clear()
