"""The objects that are followed through videos. For workers only.

ByteTrack as of `supervision`, which has passed it on to `trackers` since; that one refuses NumPy
1.26, and depends on opencv-python, which overwrites opencv-python-headless.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from gepipe.errors import ConfigError

#: Tracks that a frame can begin at most, so that those after a loss have numbers of their own.
_TRACKS_MAX: Final = 1000
#: Videos whose objects are remembered, of live sources that come interleaved.
_VIDEOS_MAX: Final = 64


class Tracks:
    """What is followed in each video.

    Args:
        score: See `gepipe.ops.tracking.Track`, as for the others.
        keep: In frames.
        match: 0 to 1.
        confirm: In frames.
    """

    def __init__(self, score: float, keep: int, match: float, confirm: int) -> None:
        try:
            from supervision.detection.core import Detections
            from supervision.tracker.byte_tracker.core import ByteTrack
        except ImportError as error:
            raise ConfigError(
                f"track needs the library supervision, 0.30: {error}; pip install 'gepipe[track]'"
            ) from error
        self._options = {
            "track_activation_threshold": score,
            "lost_track_buffer": keep,
            "minimum_matching_threshold": match,
            "minimum_consecutive_frames": confirm,
        }
        self._tracker: Callable[..., Any] = ByteTrack
        self._detections: Callable[..., Any] = Detections
        self._videos: OrderedDict[object, VideoTracks] = OrderedDict()

    def of(self, video: object, position: int, frame: int) -> VideoTracks:
        """Return what is followed in a video.

        Args:
            video: Which one.
            position: How many frames of it came before.
            frame: The number of the next frame.
        """
        found = self._videos.get(video)
        if found is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # see the top
                tracker = self._tracker(**self._options)
            found = self._videos[video] = VideoTracks(tracker, self._detections, position, frame)
            if len(self._videos) > _VIDEOS_MAX:
                self._videos.popitem(last=False)
        self._videos.move_to_end(video)
        return found


class VideoTracks:
    """What is followed in one video, and what was counted.

    Args:
        tracker: The library's.
        detections: The library's class for what it takes.
        position: How many frames came before the first that is seen here; a worker that was
            replaced has seen them, or they failed.
        frame: The number of that frame.

    Attributes:
        counts: Label to tracks so far.
        counted_from: Frame since when they are counted, if not since the first; else 0.
    """

    def __init__(
        self, tracker: Any, detections: Callable[..., Any], position: int, frame: int
    ) -> None:
        self.counts: dict[str, int] = {}
        self.counted_from = frame if position else 0
        self._tracker = tracker
        self._detections = detections
        self._base = position * _TRACKS_MAX
        self._known: set[int] = set()

    def follow(self, found: Sequence[Mapping[str, Any]]) -> list[int | None]:
        """Return the track of each object of the next frame."""
        boxes = np.array([entry["box"] for entry in found], np.float32).reshape(-1, 4)
        scores = np.array([entry["score"] for entry in found], np.float32)
        given = self._detections(
            xyxy=boxes, confidence=scores, data={"place": np.arange(len(found))}
        )
        followed = self._tracker.update_with_detections(given)
        numbers: list[int | None] = [None] * len(found)
        if not len(followed):
            return numbers
        places, tracks = followed.data["place"].tolist(), followed.tracker_id.tolist()
        for place, track in zip(places, tracks, strict=True):
            numbers[place] = self._base + track
            if track not in self._known:
                self._known.add(track)
                label = found[place].get("label")
                name = str(found[place]["class"]) if label is None else str(label)
                self.counts[name] = self.counts.get(name, 0) + 1
        return numbers
