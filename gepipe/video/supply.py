"""How room for frames is dealt out to the decoders of a feed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gepipe.runtime.arena import Arena
    from gepipe.video.crew import DecoderCrew
    from gepipe.video.openvideos import OpenVideos
    from gepipe.video.videostate import VideoState

#: Frames of the next file that are decoded ahead, and the share of the memory that they may take.
_NEXT_AHEAD: Final = 4
_NEXT_SHARE: Final = 4


class Supply:
    """Gives files room in their order, and live sources alike."""

    def __init__(
        self, videos: OpenVideos, crew: DecoderCrew, arena: Arena, *, ahead: int, most: int
    ) -> None:
        """Give nothing yet.

        Args:
            videos: The videos.
            crew: Their decoders.
            arena: The memory.
            ahead: Frames of a video that may have room or wait to be taken.
            most: Frames in flight, of each live source or of all files, from which on more would
                only take memory, and the place in caches.
        """
        self._open_videos = videos
        self._crew = crew
        self._arena = arena
        self._ahead = ahead
        self._most = most

    def give(self) -> VideoState | None:
        """Give all the room there is; return a video that is held up for want of it."""
        if self._open_videos.live:
            return self._share()
        for place, video in enumerate(self._open_videos):
            if video.over or video.size is None:
                continue
            while self._give(video, is_next=place > 0):
                pass
            if not place and not video.frames:
                return video
        return None

    def _share(self) -> VideoState | None:
        """Give live sources room: in their order, the first would take what all are to have."""
        asking = [video for video in self._open_videos if not video.over and video.size is not None]
        wanting = asking.copy()
        while wanting:
            least = min(wanting, key=lambda video: video.frames)
            if not self._give(least):
                wanting.remove(least)
        return next((video for video in asking if not video.frames), None)

    def _give(self, video: VideoState, *, is_next: bool = False) -> bool:
        if video.frames >= (_NEXT_AHEAD if is_next else self._ahead) or self._is_full():
            return False
        if self._is_greedy(video, is_next=is_next):
            return False
        offset = self._arena.allocate(video.nbytes)
        if offset is None:
            return False
        if not video.rooms:
            video.heard = time.monotonic()
        video.rooms.add(offset)
        self._crew.give(video, offset)
        return True

    def _is_full(self) -> bool:
        return len(self._arena) >= self._most * (
            len(self._open_videos) if self._open_videos.live else 1
        )

    def _is_greedy(self, video: VideoState, *, is_next: bool) -> bool:
        """Whether a video would take more than its share of the memory."""
        wanted = (video.frames + 1) * video.nbytes
        if is_next:
            return wanted > self._arena.memory.nbytes // _NEXT_SHARE
        fair = self._arena.memory.nbytes // len(self._open_videos)
        return self._open_videos.live and video.frames > 0 and wanted > fair
