"""What a packet of a video may hold."""

from __future__ import annotations

from enum import Enum, auto


class PacketKind(Enum):
    """What a packet holds, as far as that can be known without decoding it."""

    #: One frame that needs others.
    FRAME = auto()
    #: One frame that is shown before the last one of another kind.
    B_FRAME = auto()
    #: One frame that decoding can begin with: an I-frame that no later frame reaches over.
    KEY = auto()
    #: Something that others need, and nothing to show.
    HIDDEN = auto()
    #: Any number of frames.
    UNSURE = auto()
