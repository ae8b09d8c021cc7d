"""The sink for people: JSON lines, and beside them a folder of pictures with the results drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gepipe.errors import ConfigError, GepipeError, reason_of
from gepipe.io.drawnfolder import DrawnFolder, stem_of, write_part
from gepipe.io.jsonl import JsonlFile, encode_json
from gepipe.io.records import RecordFile, close_all
from gepipe.io.sink import Mark, Record
from gepipe.io.source import PLUGIN_CONFIG, start_folder

if TYPE_CHECKING:
    from gepipe.io.original import Origin


@dataclass(frozen=True)
class AnnotatedSink:
    """JSON lines as of the jsonl sink, and a folder of pictures with the results drawn in.

    Boxes of `detections` are drawn with label and score, and their track where there is one; of
    `lines` the outline with the text that was read; of `top_k` and `classes` the best three stand
    in the corner. A picture is called by index and name of its input, as in `000012-street.jpg`, or
    `000012-street-57.jpg` for frame 57 of a video, and is there before its line is. Post workers
    read each input once more, draw and write; `stream_count` is how many do so at a time.

    Args:
        path: The file of lines. Failed inputs are listed beside it, in `<stem>.failures.jsonl`.
        folder: Where the pictures go; by default the path without its ending.
        format: jpg or png.
        quality: Of jpg, 1 to 100.
        scale: Size of lines and letters; 1 suits the picture's size.
        font: A TrueType or OpenType font file, for labels that are not ASCII; without it these
            become numbers of classes.
    """

    path: str
    folder: str = ""
    format: Literal["jpg", "png"] = "jpg"
    quality: int = 90
    scale: float = 1.0
    font: str = ""

    shorthand: ClassVar[str] = "path"
    __pydantic_config__: ClassVar[dict[str, str]] = PLUGIN_CONFIG

    def __post_init__(self) -> None:
        if not 1 <= self.quality <= 100:
            raise ValueError(f"quality is {self.quality}; expected 1 to 100")
        if self.scale <= 0:
            raise ValueError(f"scale is {self.scale}; expected more than 0")

    @property
    def drawn(self) -> DrawnFolder:
        """The folder of pictures."""
        return DrawnFolder.beside(self.path, self.folder, "pictures")

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of a run into it."""
        return (f"drawn pictures go into the folder {str(self.drawn.path)!r}",)

    @property
    def encoder(self) -> Annotator:
        """Draws a result into its picture, and encodes it as JSON."""
        parts = Path(start_folder()) / self.drawn.parts
        return Annotator(parts, self.format, self.quality, self.scale, self.font)

    def open(self) -> AnnotatedFile:
        """Open and lock the file of lines, and create the folder."""
        records = RecordFile(self.path)
        try:
            return AnnotatedFile(records, self.drawn, self.format)
        except BaseException:
            records.close()
            raise


@dataclass(frozen=True)
class Annotator:
    """Draws in a post worker. The payload is the name of the drawn picture, and the JSON."""

    parts: Path
    format: str
    quality: int
    scale: float
    font: str

    takes_origin: ClassVar[bool] = True

    def __call__(self, result: Any, origin: Origin) -> bytes:
        """Write the picture of a result, and return its name and the result.

        Raises:
            ItemError: The picture cannot be read again, or the result cannot be drawn.
            ConfigError: The picture cannot be written.
        """
        from gepipe.io.drawing import annotate
        from gepipe.io.plates import Style

        text = encode_json(result)
        image = origin.picture()
        annotate(image, result, Style(self.scale, self.font))
        return self._written(image) + b" " + text

    def _written(self, image: Any) -> bytes:
        import cv2

        options = [cv2.IMWRITE_JPEG_QUALITY, self.quality] if self.format == "jpg" else []
        _, data = cv2.imencode(f".{self.format}", image, options)
        return write_part(self.parts, data.data)


class AnnotatedFile:
    """Open JSON lines, and the pictures that belong to them.

    Args:
        records: The file of lines.
        drawn: The folder of pictures; created. Workers put them into its parts.
        ending: Of the pictures' names.
    """

    def __init__(self, records: RecordFile, drawn: DrawnFolder, ending: str) -> None:
        self._records = records
        self._lines = JsonlFile(records)
        self._drawn = drawn
        self._ending = ending
        drawn.create()

    def clear(self) -> None:
        """Drop what an earlier run left: its lines, and the pictures that belong to them."""
        self.cut(0)

    def scan(self) -> Iterator[Mark]:
        """Yield the whole records on disk, up to the first whose picture is missing."""
        for mark in self._lines.scan():
            if not self._picture(mark.index, self.source_of(mark)).exists():
                return
            yield mark

    def source_of(self, mark: Mark) -> str:
        """Return the source that a record names."""
        return self._lines.source_of(mark)

    def spelled(self, source: str) -> str:
        """Return how the file spells `source`: as it is."""
        return source

    def cut(self, end: int) -> None:
        """Drop everything behind a mark's `end`, pictures too."""
        for mark in self._lines.scan():
            if mark.end > end:
                with suppress(ConfigError, OSError, ValueError):  # not of such a run, or gone
                    self._picture(mark.index, self.source_of(mark)).unlink(missing_ok=True)
        self._lines.cut(end)

    def write(self, records: Sequence[Record]) -> None:
        """Put the pictures into their places and append the lines.

        Raises:
            GepipeError: One of them fails. What is in the file stays an exact prefix.
        """
        lines = []
        for index, source, payload in records:
            name, _, text = payload.partition(b" ")
            place = self._picture(index, source)
            try:
                (self._drawn.parts / name.decode()).replace(place)
            except OSError as error:
                why = reason_of(error)
                raise GepipeError(f"cannot write {str(place)!r}: {why}") from error
            lines.append(Record(index, source, text))
        self._lines.write(lines)

    def close(self, *, complete: bool) -> None:
        """Bring the lines to the disk, and remove what was drawn in vain."""
        close_all(self._drawn.tidy, partial(self._lines.close, complete=complete))

    def _picture(self, index: int, source: str) -> Path:
        video, _, frame = source.rpartition("#frame=")
        name = video if video and frame.isdigit() else source
        stem = stem_of(name)
        if name != source:
            stem += f"-{frame}"
        return self._drawn.path / f"{index:06}-{stem}.{self._ending}"
