"""How room for frames is dealt out to the decoders of a feed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gepipe.video.arena import Arena
    from gepipe.video.crew import DecoderCrew
    from gepipe.video.reel import Reel
    from gepipe.video.reels import Reels

#: Frames of the next file that are decoded ahead, and the share of the memory that they may take.
_NEXT_AHEAD: Final = 4
_NEXT_SHARE: Final = 4


class Supply:
    """Gives files room in their order, and live sources alike."""

    def __init__(
        self, reels: Reels, crew: DecoderCrew, arena: Arena, *, ahead: int, most: int
    ) -> None:
        """Give nothing yet.

        Args:
            reels: The videos.
            crew: Their decoders.
            arena: The memory.
            ahead: Frames of a video that may have room or wait to be taken.
            most: Frames in flight, of each live source or of all files, from which on more would
                only take memory, and the place in caches.
        """
        self._reels = reels
        self._crew = crew
        self._arena = arena
        self._ahead = ahead
        self._most = most

    def give(self) -> Reel | None:
        """Give all the room there is; return a video that is held up for want of it."""
        if self._reels.live:
            return self._share()
        for place, reel in enumerate(self._reels):
            if reel.over or reel.size is None:
                continue
            while self._give(reel, is_next=place > 0):
                pass
            if not place and not reel.frames:
                return reel
        return None

    def _share(self) -> Reel | None:
        """Give live sources room: in their order, the first would take what all are to have."""
        asking = [reel for reel in self._reels if not reel.over and reel.size is not None]
        wanting = asking.copy()
        while wanting:
            least = min(wanting, key=lambda reel: reel.frames)
            if not self._give(least):
                wanting.remove(least)
        return next((reel for reel in asking if not reel.frames), None)

    def _give(self, reel: Reel, *, is_next: bool = False) -> bool:
        if reel.frames >= (_NEXT_AHEAD if is_next else self._ahead) or self._is_full():
            return False
        if self._is_greedy(reel, is_next=is_next):
            return False
        offset = self._arena.allocate(reel.nbytes)
        if offset is None:
            return False
        if not reel.rooms:
            reel.heard = time.monotonic()
        reel.rooms.add(offset)
        self._crew.give(reel, offset)
        return True

    def _is_full(self) -> bool:
        return len(self._arena) >= self._most * (len(self._reels) if self._reels.live else 1)

    def _is_greedy(self, reel: Reel, *, is_next: bool) -> bool:
        """Whether a video would take more than its share of the memory."""
        wanted = (reel.frames + 1) * reel.nbytes
        if is_next:
            return wanted > self._arena.memory.nbytes // _NEXT_SHARE
        fair = self._arena.memory.nbytes // len(self._reels)
        return self._reels.live and reel.frames > 0 and wanted > fair
