"""One video on its way through a decoder, as the feed keeps account of it. Does no I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gepipe.errors import ItemError

#: Decoders that a video may cost, however far each of them came.
CRASHES_MAX: Final = 8


class Ready(NamedTuple):
    """A decoded frame that waits for the pipeline.

    Attributes:
        arrival: Ascends over all videos.
        offset: Where its pixels lie.
        height: In pixels.
        width: In pixels.
        frame: Its number in the video.
        time: In seconds.
        position: Which of the wanted frames of the video it is.
    """

    arrival: int
    offset: int
    height: int
    width: int
    frame: int
    time: float
    position: int


@dataclass(eq=False)
class VideoState:
    """A video.

    Attributes:
        number: Which of the job's videos.
        source: What people see.
        path: The same as bytes.
        live: Whether it comes at its own pace.
        skip: Wanted frames still to be passed over.
        opening: Number of the opening that its decoder is in, -1 for none.
        request: The decoder's last request for room.
        size: Height and width of the frames that it asked room for.
        rooms: Room that the decoder has.
        ready: Frames to take.
        behind: Number of the last wanted frame that came.
        time: Its time, in seconds.
        position: Wanted frames so far.
        over: Whether nothing more will come.
        trouble: Kind and text of its failure, if it has one.
        estimate: About how many wanted frames there are; 0 for no idea.
        dropped: Frames that there was no time for.
        heard: When the decoder was last heard of, on the monotonic clock.
    """

    number: int
    source: str
    path: bytes
    live: bool = False
    skip: int = 0
    opening: int = -1
    request: int = -1
    size: tuple[int, int] | None = None
    rooms: set[int] = field(default_factory=set)
    ready: deque[Ready] = field(default_factory=deque)
    behind: int = -1
    time: float = 0.0
    position: int = 0
    over: bool = False
    trouble: tuple[str, str] | None = None
    estimate: int = 0
    dropped: int = 0
    heard: float = 0.0
    _crashes: int = 0
    _crashed_behind: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of a frame; 0 before that is known."""
        return self.size[0] * self.size[1] * 3 if self.size else 0

    @property
    def frames(self) -> int:
        """Frames that it has memory for: decoded ones, and room for further ones."""
        return len(self.rooms) + len(self.ready)

    @property
    def is_waiting(self) -> bool:
        """Whether its decoder can do nothing before it is given room."""
        return self.size is not None and not self.rooms

    def ask(self, request: int, height: int, width: int) -> set[int]:
        """Take the decoder's request for room; return the room that it forgets."""
        forgotten, self.rooms = self.rooms, set()
        self.request, self.size = request, (height, width)
        return forgotten

    def arrive(  # noqa: PLR0913, PLR0917 - the fields of one message
        self, arrival: int, offset: int, height: int, width: int, frame: int, time: float
    ) -> None:
        """Take a frame."""
        self.rooms.discard(offset)
        self.ready.append(Ready(arrival, offset, height, width, frame, time, self.position))
        self.position += 1
        self.behind, self.time = frame, time

    def pass_over(self, count: int, frame: int) -> None:
        """Take that frames were passed over, `frame` the last of them."""
        self.skip -= count
        self.position += count
        self.behind = max(self.behind, frame)

    def end(self, note: str) -> None:
        """Take that the video is at its end; `note` says what of it could not be decoded."""
        self.over = True
        if note:
            self.trouble = ("damaged", f"{self.source!r}: {note}")

    def fail(self, kind: str, text: str) -> None:
        """Take that the video cannot be decoded, or no further."""
        self.over = True
        self.trouble = (kind, text)

    def crash(self, cause: str, *, blamed: bool = True) -> bool:
        """Take that its decoder ended; return whether another one shall go on.

        Args:
            cause: How, in words.
            blamed: Whether the video may be to blame for it.
        """
        self.request, self.size = -1, None
        self._crashes += 1
        where = f"behind frame {self.behind}" if self.behind >= 0 else "before its first frame"
        if blamed and self._crashed_behind == self.behind:
            self.fail(
                "decoder",
                f"{self.source!r}: its decoder ended twice {where}, {cause}; "
                "the rest of this video is left out",
            )
        elif self._crashes >= CRASHES_MAX:
            self.fail(
                "decoder",
                f"{self.source!r}: its decoder ended {self._crashes} times, lastly {where}, "
                f"{cause}; the rest of this video is left out",
            )
        if blamed:
            self._crashed_behind = self.behind
        return not self.over


def too_large(source: str, height: int, width: int, most_bytes: int, least: int = 1) -> ItemError:
    """Return the failure of a video whose frames the memory does not hold.

    Args:
        source: The video.
        height: Of its frames.
        width: Of its frames.
        most_bytes: What there is for frames.
        least: How many of them there must be room for.
    """
    several = f"{least:,} of them" if least > 1 else "several of them"
    return ItemError(
        "too_large",
        f"{source!r}: a frame of {width}x{height} pixels takes {3 * height * width:,} bytes; "
        f"there are {most_bytes:,} for frames; set memory of the source so that there is room for "
        f"{several}",
    )
