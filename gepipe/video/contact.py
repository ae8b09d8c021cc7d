"""The sink for an overview: JSON lines, and beside them sheets of small pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gepipe.io.drawnfolder import DrawnFolder, write_part
from gepipe.io.jsonl import encode_json
from gepipe.io.records import RecordFile
from gepipe.io.source import PLUGIN_CONFIG, start_folder
from gepipe.video.contactfile import NOTHING, ContactSheetFile, stride
from gepipe.video.sheetlayout import Layout

if TYPE_CHECKING:
    from gepipe.io.original import Origin


@dataclass(frozen=True)
class ContactSheetSink:
    """JSON lines, each with the name of its sheet, and a folder of sheets of small pictures.

    There is one sheet for each video, called as in `000-street.jpg`, with at most `count` frames at
    equal distances, and one for every `count` pictures, called `000.jpg`. Results are drawn as by
    `annotated`; below a picture stand the frame and its time, or the input's index and name. A
    sheet appears when it is whole. A run that is stopped drops those that it is at, and `--resume`
    goes on at their first input.

    Args:
        path: The file of lines. Failed inputs are listed beside it, in `<stem>.failures.jsonl`.
        folder: Where the sheets go; by default the path without its ending.
        count: Most pictures of a sheet.
        columns: Pictures of a row.
        width: Of a picture, in pixels; it is at most as high.
        scale: Size of lines and letters; 1 suits the picture's size.
        font: A TrueType or OpenType font file, for text that is not ASCII.
    """

    path: str
    folder: str = ""
    count: int = 48
    columns: int = 6
    width: int = 240
    scale: float = 1.0
    font: str = ""

    shorthand: ClassVar[str] = "path"
    __pydantic_config__: ClassVar[dict[str, str]] = PLUGIN_CONFIG

    def __post_init__(self) -> None:
        for name, least, most in (("count", 1, 1000), ("columns", 1, 100), ("width", 32, 2000)):
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} is {getattr(self, name)}; expected {least} to {most}")
        if self.scale <= 0:
            raise ValueError(f"scale is {self.scale}; expected more than 0")

    @property
    def drawn(self) -> DrawnFolder:
        """The folder of sheets."""
        return DrawnFolder.beside(self.path, self.folder, "sheets")

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of a run into it."""
        return (f"contact sheets go into the folder {str(self.drawn.path)!r}",)

    @property
    def encoder(self) -> Thumbnailer:
        """Draws a small picture of a result, and encodes it as JSON."""
        parts = Path(start_folder()) / self.drawn.parts
        return Thumbnailer(parts, self.count, self.width, self.scale, self.font)

    def open(self) -> ContactSheetFile:
        """Open and lock the file of lines, and create the folder."""
        records = RecordFile(self.path)
        try:
            layout = Layout(self.count, self.columns, self.width, self.font)
            return ContactSheetFile(records, self.drawn, layout)
        except BaseException:
            records.close()
            raise


@dataclass(frozen=True)
class Thumbnailer:
    """Draws in a post worker.

    The payload is the name of the small picture, number and position of the frame, its time, and
    the JSON; `-` for what there is not.
    """

    parts: Path
    count: int
    width: int
    scale: float
    font: str

    takes_origin: ClassVar[bool] = True

    def __call__(self, result: Any, origin: Origin) -> bytes:
        """Write the small picture of a result, if its sheet may need it, and return all.

        Raises:
            ItemError: The picture cannot be read again, or the result cannot be drawn.
            ConfigError: The small picture cannot be written.
        """
        text = encode_json(result)
        meta = origin.meta
        facts = [NOTHING] * 3
        position = meta.get("position")
        if position is not None:
            facts = [b"%d" % meta["video"], b"%d" % position, b"%.3f" % meta["time"]]
        wanted = position is None or position % stride(position, self.count) == 0
        name = self._written(origin.picture(), result) if wanted else NOTHING
        return b" ".join((name, *facts, text))

    def _written(self, image: Any, result: Any) -> bytes:
        import cv2

        from gepipe.io.drawing import annotate
        from gepipe.io.plates import Style

        # Letters that can still be read in a picture that much smaller.
        shrinking = max(1.0, max(image.shape[:2]) / self.width)
        annotate(image, result, Style(self.scale * max(1.0, shrinking**0.5), self.font))
        size = [max(1, round(side / shrinking)) for side in image.shape[1::-1]]
        small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
        _, data = cv2.imencode(".png", small, [cv2.IMWRITE_PNG_COMPRESSION, 1])
        return write_part(self.parts, data.data)
