"""The sink for films: JSON lines, and beside them an MP4 of each video with the results drawn."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gepipe.errors import ConfigError
from gepipe.io.drawnfolder import DrawnFolder, stem_of
from gepipe.io.jsonl import encode_json
from gepipe.io.linked import LinkedLines
from gepipe.io.records import RecordFile, close_all
from gepipe.io.sink import Record
from gepipe.io.source import PLUGIN_CONFIG
from gepipe.video.sinkprocess import SinkProcess

if TYPE_CHECKING:
    from gepipe.io.failures import Failure
    from gepipe.io.original import Origin
    from gepipe.video.frame import Frames


@dataclass(frozen=True)
class VideoSink:
    """JSON lines, each with the name of its film, and a folder of MP4s with the results drawn.

    A film has the frames and the time stamps of its video, is H.264 that browsers play, and is
    called by number and name of it, as in `000-street.mp4`; sizes that are odd grow by one pixel.
    Drawn are boxes, texts and classes, as by `annotated`. A frame without a result stays as it is.
    A film appears when it is whole. A run that is stopped drops the one that it is at, and
    `--resume` goes on at the first frame of that video.

    Args:
        path: The file of lines. Failed inputs are listed beside it, in `<stem>.failures.jsonl`.
        folder: Where the films go; by default the path without its ending.
        crf: How much may be lost for a small file: 0 nothing, 18 hardly visible, 51 all.
        preset: How much work the encoder puts into a small file.
        scale: Size of lines and letters; 1 suits the picture's size.
        font: A TrueType or OpenType font file, for labels that are not ASCII; without it these
            become numbers of classes.
    """

    path: str
    folder: str = ""
    crf: int = 23
    preset: Literal[
        "ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower"
    ] = "veryfast"
    scale: float = 1.0
    font: str = ""

    shorthand: ClassVar[str] = "path"
    #: The feed leaves the memory of frames to this sink, see `gepipe.video.frame.Frames`.
    keeps_frames: ClassVar[bool] = True
    __pydantic_config__: ClassVar[dict[str, str]] = PLUGIN_CONFIG

    def __post_init__(self) -> None:
        if not 0 <= self.crf <= 51:
            raise ValueError(f"crf is {self.crf}; expected 0 to 51")
        if self.scale <= 0:
            raise ValueError(f"scale is {self.scale}; expected more than 0")

    @property
    def drawn(self) -> DrawnFolder:
        """The folder of films."""
        return DrawnFolder.beside(self.path, self.folder, "films")

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of a run into it."""
        return (f"films go into the folder {str(self.drawn.path)!r}",)

    @property
    def encoder(self) -> FrameAnnotator:
        """Draws a result into its frame, and encodes it as JSON."""
        return FrameAnnotator(self.scale, self.font)

    def open(self) -> VideoFile:
        """Open and lock the file of lines, and create the folder.

        Raises:
            ConfigError: PyAV is missing, or something cannot be written.
        """
        if find_spec("av") is None:
            raise ConfigError("the sink video needs PyAV; pip install 'gepipe[video]'")
        records = RecordFile(self.path)
        try:
            return VideoFile(records, self.drawn, self)
        except BaseException:
            records.close()
            raise


@dataclass(frozen=True)
class FrameAnnotator:
    """Draws in a post worker, into the frame where it lies. The payload is the JSON."""

    scale: float
    font: str

    takes_origin: ClassVar[bool] = True

    def __call__(self, result: Any, origin: Origin) -> bytes:
        """Draw a result, and return it.

        Raises:
            ItemError: It cannot be drawn.
        """
        from gepipe.io.drawing import annotate
        from gepipe.io.plates import Style

        text = encode_json(result)
        annotate(origin.picture(), result, Style(self.scale, self.font))
        return text


class VideoFile(LinkedLines):
    """Open JSON lines, and the films that belong to them.

    Args:
        records: The file of lines.
        drawn: The folder of films; created.
        sink: How.
    """

    by_video: ClassVar[bool] = True

    def __init__(self, records: RecordFile, drawn: DrawnFolder, sink: VideoSink) -> None:
        super().__init__(records, drawn.path, "film")
        self._drawn = drawn
        self._sink = sink
        self._frames: Frames | None = None
        self._process: SinkProcess | None = None
        self._names: dict[int, str] = {}  # index to film, of what is being written
        self._film = ""  # the one that the last frame went to
        self._over: list[str] = []  # films that got their last frame, but were not told so yet
        self._ended: list[str] = []  # those that were
        drawn.create()

    def attach(self, feed: Any) -> None:
        """Take the feed whose frames the films are made of, and start the encoder.

        Raises:
            ConfigError: The inputs are no videos.
            WorkerStartError: The encoder does not start.
        """
        if not hasattr(feed, "keep_frame"):
            raise ConfigError(
                "the sink video takes videos, not pictures; use the sink annotated for those"
            )
        self._frames = feed
        args = (str(self._drawn.path), str(self._drawn.parts), self._sink.crf, self._sink.preset)
        self._process = SinkProcess("encoder", _encode, args)
        freed = feed.lend(self._process.gone)
        try:
            self._process.send(("memory", feed.memory.nbytes), [feed.memory.fd, freed])
        finally:
            os.close(freed)

    def see(self, outcomes: Sequence[Record | Failure]) -> None:
        """Pass the frames of outcomes on to the encoder; called before they are written.

        Raises:
            GepipeError: The encoder has failed.
        """
        frames, process = self._frames, self._process
        assert frames is not None
        assert process is not None
        self._end_films(process)
        self._names.clear()
        batch: list[tuple[int, int, int, float]] = []
        for outcome in outcomes:
            frame = frames.keep_frame(outcome.index)
            if frame is None:  # there never was a picture
                continue
            name = self._names[outcome.index] = _film_name(frame.video, outcome.source)
            if name != self._film:
                if batch:
                    process.send(("frames", self._film, batch))
                if self._film and not frames.live:
                    self._over.append(self._film)
                self._film, batch = name, []
            batch.append(frame[:4])
        if batch:
            process.send(("frames", self._film, batch))

    def write(self, records: Sequence[Record]) -> None:
        """Append the lines.

        Raises:
            GepipeError: That fails. What is in the file stays an exact prefix.
        """
        self.append(records, self._names)

    def request_stop(self) -> None:
        """Ask not to wait for a process that does nothing. Safe in any thread."""
        process = self._process
        if process is not None:
            process.request_stop()

    def close(self, *, complete: bool) -> None:
        """Bring the lines and all films to the disk, or drop the film that was not to its end."""
        finish = partial(self._close_films, complete=complete)
        close_all(self.close_lines, finish, self._drawn.tidy)

    def _end_films(self, process: SinkProcess) -> None:
        """End films whose last outcomes are in the files: no film appears before its lines."""
        for name in self._over:
            process.send(("end", name))
        self._ended += self._over
        self._over.clear()

    def _close_films(self, *, complete: bool) -> None:
        process = self._process
        if process is None:
            return
        try:
            if complete or (self._frames is not None and self._frames.live):
                process.finish()
            elif not process.failed:
                self._end_films(process)
                process.wait_made(self._ended)
        finally:
            self._process = None
            process.close()


def _encode(*args: Any) -> None:
    """Run the encoder process. PyAV is loaded there only."""
    from gepipe.video import encoder

    encoder.main(*args)


def _film_name(video: int, source: str) -> str:
    return f"{video:03}-{stem_of(source.rpartition('#frame=')[0] or source)}.mp4"
