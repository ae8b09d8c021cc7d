"""The operator that gives what a detector finds in a video an identity over its frames."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gepipe.errors import ItemError
from gepipe.ops.op import Meta, Op

if TYPE_CHECKING:
    from gepipe.ops.tracks import Tracks


@dataclass(frozen=True)
class Track(Op):
    """Give each object of `detections` the number of its `track`, the same in every frame.

    Tracks count from 1 in each video; an object that is not (yet) followed has the track null, or
    is left out if its score is low. The record gains `counts`: how many tracks each label, or class
    without labels, has had so far in this video; a track counts for the label that it began with.
    Frames are taken strictly in order, by one post worker; pictures that are no frames count as
    those of one video. If that worker has to be replaced, or the first frames fail, tracks begin at
    a number that none had before, and the records of the rest of that video say `counted_from`, the
    frame since when. A run that is resumed goes on at the first frame of a video. By ByteTrack,
    which also follows objects whose score is low for a while, so let `yolo` list them
    (`confidence: 0.1`). Needs `pip install 'gepipe[track]'`.

    Attributes:
        score: Objects with a lower score are only listed while they are followed, and those below
            0.1 are not followed. It takes 0.1 more to begin a track.
        keep: How many frames an object may be out of sight and keep its track.
        match: How different a box may be from where its track is expected: 1 minus overlap times
            score.
        confirm: How many frames in a row an object must be seen to be a track.
    """

    stage: ClassVar[Literal["pre", "mid", "post", "both"]] = "post"
    ordered: ClassVar[bool] = True
    follows: ClassVar[str] = "yolo"
    score: float = 0.25
    keep: int = 30
    match: float = 0.8
    confirm: int = 1

    def __post_init__(self) -> None:
        for name in ("score", "match"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")
        for name in ("keep", "confirm"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    def __call__(self, value: Any, meta: Meta) -> Any:
        """Return the record with tracks and counts.

        Raises:
            ItemError: `no_detections`: the record has no list of them.
        """
        found = value.get("detections") if isinstance(value, dict) else None
        if not isinstance(found, list):
            given = sorted(value) if isinstance(value, dict) else type(value).__name__
            raise ItemError(
                "no_detections",
                f"track takes records with a list of detections, as yolo makes; got {given}",
            )
        video, position = meta.get("video"), meta.get("position", 0)
        tracks = self._tracks.of(video, position, meta.get("frame", 0))
        numbers = tracks.follow(found)
        entries = [
            {**entry, "track": number}
            for entry, number in zip(found, numbers, strict=True)
            if number is not None or entry["score"] >= self.score
        ]
        record = {**value, "detections": entries, "counts": dict(tracks.counts)}
        if tracks.counted_from:
            record["counted_from"] = tracks.counted_from
        return record

    def setup(self) -> None:
        """Load the library.

        Raises:
            ConfigError: It is missing.
        """
        _ = self._tracks

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_tracks"}

    @cached_property
    def _tracks(self) -> Tracks:
        from gepipe.ops.tracks import Tracks

        return Tracks(self.score, self.keep, self.match, self.confirm)
