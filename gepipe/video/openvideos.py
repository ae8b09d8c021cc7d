"""The videos of a feed that are being decoded, in the order in which their frames are taken."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gepipe.io.videos import is_address
from gepipe.runtime.process import SERVER_KILLED
from gepipe.video.crew import DecoderCrew
from gepipe.video.order import Order
from gepipe.video.progress import VideoProgress
from gepipe.video.videostate import VideoState

if TYPE_CHECKING:
    from gepipe.errors import ItemError
    from gepipe.io.source import Entry
    from gepipe.io.videos import VideoFiles
    from gepipe.runtime.arena import Arena

log = logging.getLogger(__name__)

#: Longer than any pause of a live source that is being connected anew.
_LIVE_SILENCE_S = 35.0


class OpenVideos:
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
        self._open_videos: deque[VideoState] = deque()
        self._more = True  # whether there are videos that were not begun
        self._begun = self._dropped = self._arrivals = 0

    def __iter__(self) -> Iterator[VideoState]:
        return iter(self._open_videos.copy())

    def __len__(self) -> int:
        return len(self._open_videos)

    @property
    def are_over(self) -> bool:
        """Whether every video has been begun and removed."""
        return not self._open_videos and not self._more

    def begin(self) -> None:
        """Have as many videos decoded as the order of frames allows.

        Raises:
            WorkerStartError: A decoder cannot be started.
        """
        while self._more:
            if self.skip and self._open_videos:
                return  # how many are to be passed over of the next one shows at this one's end
            if not self.live and len(self._open_videos) >= 2:
                return
            following = next(self._videos, None)
            if following is None:
                self._more = False
                return
            number, (name, path, *_) = following
            self._begun += 1
            self._open(VideoState(number, name, path, self._source.is_live(path), skip=self.skip))

    def turn(self) -> VideoState | None:
        """Return the video whose turn it is, if it has something to give or is over."""
        if not self.live:
            video = self._open_videos[0] if self._open_videos else None
            return video if video is not None and (video.ready or video.over) else None
        done = next((video for video in self._open_videos if video.over and not video.ready), None)
        ready = [video for video in self._open_videos if video.ready]
        return done or min(ready, key=lambda video: video.ready[0].arrival, default=None)

    def remove(self, video: VideoState) -> None:
        """Forget a video that is over."""
        self._open_videos.remove(video)

    def rewind(self, video: VideoState) -> None:
        """Drop what was decoded ahead of a video, to begin it anew."""
        self._crew.dismiss(video)
        for offset in (*video.rooms, *(ready.offset for ready in video.ready)):
            self._arena.free(offset)
        self._open_videos.remove(video)
        self._open(VideoState(video.number, video.source, video.path, video.live, skip=video.skip))

    def refuse(self, video: VideoState, error: ItemError) -> None:
        """Give a video up."""
        self._crew.dismiss(video)
        self._free_rooms(video)
        video.fail(str(error.kind), str(error))

    def progress(self, count: int | None) -> VideoProgress:
        """Return how far they are. Safe in any thread.

        Args:
            count: How many videos there are.
        """
        videos = tuple(self._open_videos.copy())
        video = videos[0] if videos else None
        return VideoProgress(
            begun=self._begun - (len(videos) - 1 if videos and not self.live else 0),
            videos=count,
            source=video.source if video else "",
            frames=video.position - len(video.ready) if video else 0,
            estimate=video.estimate if video else 0,
            dropped=self._dropped,
        )

    def _open(self, video: VideoState) -> None:
        if video not in self._open_videos:
            self._open_videos.append(video)
        source = self._source
        order = Order(
            video.path,
            video.live,
            video.behind,
            video.time,
            video.skip,
            source.every,
            source.fps,
            float(source.start),
            math.inf if source.stop is None else float(source.stop),
            source.threads,
            float(source.timeout),
            source.reconnect,
        )
        self._crew.open(video, order)

    # --- what decoders say ------------------------------------------------------------------------

    def pump(self) -> Iterator[VideoState]:
        """Take what decoders have said; yield each video that tells the size of its frames.

        Raises:
            WorkerStartError: A decoder cannot be replaced.
        """
        for video, message in self._crew.messages():
            self._obey(video, message)
            if message[0] == "size":
                yield video
        for video, cause in self._crew.lost(self._silence):
            self._free_rooms(video)
            if video.crash(cause, blamed=cause != SERVER_KILLED):
                log.warning("%s: its decoder %s; another one goes on", video.source, cause)
                self._open(video)

    def _silence(self, video: VideoState) -> float:
        timeout_s = float(self._source.timeout)
        if video.live:
            return 2 * timeout_s + _LIVE_SILENCE_S
        # Where a network is in between, the decoder knows better what was waited for.
        return 2 * timeout_s if is_address(video.path) else timeout_s

    def _obey(self, video: VideoState, message: tuple[Any, ...]) -> None:
        video.heard = time.monotonic()
        match message:
            case ("frame", _, offset, height, width, frame, time_s):
                self._arrivals += 1
                video.arrive(self._arrivals, offset, height, width, frame, time_s)
                if video.live and len(video.ready) > self._most:
                    self._arena.free(video.ready.popleft().offset)
                    self._drop(video, 1)
            case ("size", request, height, width):
                for offset in video.ask(request, height, width):
                    self._arena.free(offset)
            case ("passed", count, frame):
                self.skip -= count
                video.pass_over(count, frame)
            case ("dropped", count):
                self._drop(video, count)
            case ("opened", _, estimate, _):
                video.estimate = estimate
            case ("lost", text, wait_s):
                log.warning("%s: %s; connecting again in %.3g s", video.source, text, wait_s)
            case ("ended", _, note):
                self._free_rooms(video)
                video.end(note)
            case ("failed", kind, text):
                self._free_rooms(video)
                video.fail(kind, text)

    def _drop(self, video: VideoState, count: int) -> None:
        video.dropped += count
        self._dropped += count

    def _free_rooms(self, video: VideoState) -> None:
        for offset in video.rooms:
            self._arena.free(offset)
        video.rooms.clear()
