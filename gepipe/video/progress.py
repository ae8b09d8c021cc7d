"""How far a run over videos is."""

from __future__ import annotations

from dataclasses import dataclass


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
