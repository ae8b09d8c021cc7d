"""The objects that are followed through a video. For workers only.

ByteTrack as of `supervision`, which has passed it on to `trackers` since; that one refuses NumPy
1.26, and depends on opencv-python, which overwrites opencv-python-headless.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from gepipe.errors import ConfigError

#: Tracks that a frame can begin at most, so that those after a loss have numbers of their own.
_TRACKS_MAX: Final = 1000


class Tracks:
    """What is followed, and what was counted.

    Args:
        score: See `gepipe.ops.tracking.Track`, as for the others.
        keep: In frames.
        match: 0 to 1.
        confirm: In frames.

    Attributes:
        counts: Label to tracks so far, in this video.
        counted_from: Frame since when they are counted, if not since the first.
    """

    def __init__(self, score: float, keep: int, match: float, confirm: int) -> None:
        try:
            from supervision.detection.core import Detections
            from supervision.tracker.byte_tracker.core import ByteTrack
        except ImportError as error:
            raise ConfigError(
                f"track needs the library supervision, 0.30: {error}; pip install 'gepipe[track]'"
            ) from error
        self.counts: dict[str, int] = {}
        self.counted_from = 0
        self._detections = Detections
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # see the top
            self._tracker = ByteTrack(
                track_activation_threshold=score,
                lost_track_buffer=keep,
                minimum_matching_threshold=match,
                minimum_consecutive_frames=confirm,
            )
        self._video: object = None
        self._begun = False
        self._base = 0
        self._known: set[int] = set()

    def enter(self, video: object, position: int, frame: int) -> None:
        """Begin anew where a frame is of another video than the one before.

        Args:
            video: Which video it is of.
            position: How many frames of it came before.
            frame: Its number in the video.
        """
        if self._begun and video == self._video:
            return
        # What a worker saw that was replaced is lost.
        lost = not self._begun and position > 0
        self._base = position * _TRACKS_MAX if lost else 0
        self.counted_from = frame if lost else 0
        self._begun, self._video = True, video
        self._tracker.reset()
        self._known.clear()
        self.counts.clear()

    def follow(self, found: Sequence[Mapping[str, Any]]) -> list[int | None]:
        """Return the track of each object of the next frame."""
        boxes = np.array([entry["box"] for entry in found], np.float32).reshape(-1, 4)
        scores = np.array([entry["score"] for entry in found], np.float32)
        given = self._detections(
            xyxy=boxes, confidence=scores, data={"place": np.arange(len(found))}
        )
        followed = self._tracker.update_with_detections(given)
        numbers: list[int | None] = [None] * len(found)
        if len(followed):
            for place, track in zip(
                followed.data["place"].tolist(), followed.tracker_id.tolist(), strict=True
            ):
                numbers[place] = self._base + track
                if track not in self._known:
                    self._known.add(track)
                    label = found[place].get("label")
                    name = str(found[place]["class"]) if label is None else str(label)
                    self.counts[name] = self.counts.get(name, 0) + 1
        return numbers
