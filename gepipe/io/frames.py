"""How workers see the frames that decoders have put into shared memory."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gepipe.errors import InternalError, ItemError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: First value of the payload of an item that has no frame: a source that failed, or was damaged.
FAILED = "failed"


@dataclass(frozen=True)
class FrameReader:
    """Gives frames as views of the memory that they were decoded into.

    A payload is `(offset, height, width, time, video, frame, position, path)`, or `(FAILED, kind,
    text)` for a source, or part of one, that has no frame to show; bytes are the path of a video,
    for its first frame.
    """

    _memory: list[Any] = field(default_factory=list, init=False, compare=False, repr=False)

    def attach(self, buffer: Any) -> None:
        """Take the memory, a `SharedBuffer`, that payloads point into."""
        import numpy as np

        self._memory[:] = [np.frombuffer(buffer.map, np.uint8)]

    def read(self, payload: Any) -> NDArray[Any]:
        """Return a frame, (height, width, 3) uint8, BGR, upright: a view, valid for this item.

        Raises:
            ItemError: There is none; says why.
        """
        if isinstance(payload, bytes):
            return _first_frame(payload)
        if payload[0] == FAILED:
            raise ItemError(payload[1], payload[2])
        offset, height, width = payload[:3]
        if not self._memory:
            raise InternalError("a frame came before its memory; please report this")
        pixels = self._memory[0][offset : offset + height * width * 3]
        frame: NDArray[Any] = pixels.reshape(height, width, 3)
        return frame

    def facts(self, payload: Any) -> dict[str, Any]:
        """Return what is known of a frame without looking at it, for `meta`."""
        if isinstance(payload, bytes):
            payload = (0, 0, 0, 0.0, 0, 0, 0, os.fsdecode(payload))
        if payload[0] == FAILED:
            return {}
        _, height, width, time, video, frame, position, path = payload
        return {
            "frame": frame,
            "time": time,
            "video": video,
            "position": position,
            "source": path,
            "height": height,
            "width": width,
        }


def stamped(result: Any, meta: dict[str, Any]) -> Any:
    """Return the result of a frame with its number and time in front; any other as it is."""
    if "position" not in meta or "frame" not in meta or not isinstance(result, dict):
        return result
    return {"frame": meta["frame"], "time": meta["time"], **result}


def _first_frame(path: bytes) -> NDArray[Any]:
    import av

    try:
        with av.open(f"file:{os.fsdecode(path)}") as container:
            for frame in container.decode(video=0):
                picture: NDArray[Any] = frame.to_ndarray(format="bgr24")
                return picture
    except (av.error.FFmpegError, IndexError, UnicodeError) as error:
        raise ItemError("decoder", f"{os.fsdecode(path)!r}: {error}") from error
    raise ItemError("decoder", f"{os.fsdecode(path)!r}: holds no frame")
