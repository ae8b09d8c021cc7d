"""A frame of a video as the sinks see it: where its pixels lie, and which frame it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from gepipe.runtime.memory import SharedBuffer


class Frame(NamedTuple):
    """Facts of a frame.

    Attributes:
        offset: Where its (height, width, 3) uint8 BGR pixels lie in the shared memory, in bytes.
        height: In pixels.
        width: In pixels.
        time: Its presentation time in the source, in seconds.
        video: Number of its source in the job.
    """

    offset: int
    height: int
    width: int
    time: float
    video: int


class Frames(Protocol):
    """A feed of frames, as a sink that keeps their pictures sees it.

    Attributes:
        memory: What the offsets point into.
        live: Whether the sources never end by themselves, and come interleaved.
    """

    memory: SharedBuffer
    live: bool

    def lend(self, gone: Callable[[], Exception]) -> int:
        """Return the writing end of the pipe that takes offsets of frames that are free again.

        It is the caller's to close.

        Args:
            gone: Called when nobody holds that end any more although the run goes on, so that
                frames will never come back; `take` raises what it returns.
        """
        ...

    def keep_frame(self, index: int) -> Frame | None:
        """Take over the memory of an item that is being emitted; None if it has no picture.

        It is free again when its offset, 8 bytes in native order, comes out of the pipe.
        """
        ...
