"""The open files of the sink contact_sheet: which small picture goes into which sheet."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gepipe.errors import ConfigError, reason_of
from gepipe.io.linked import LinkedLines
from gepipe.io.records import close_all
from gepipe.io.sink import Mark, Record
from gepipe.video.maker import Maker

if TYPE_CHECKING:
    from gepipe.io.records import RecordFile

#: What stands in a payload for what there is not.
NOTHING: Final = b"-"
#: What a file name may take of its source's; file systems allow 255 bytes.
_STEM_BYTES: Final = 200


@dataclass(frozen=True)
class Layout:
    """How sheets look.

    Attributes:
        count: Most pictures of a sheet.
        columns: Pictures of a row.
        width: Of a picture, in pixels.
        font: A font file for captions that are not ASCII, or empty.
    """

    count: int
    columns: int
    width: int
    font: str


def stride(position: int, count: int) -> int:
    """Return which frames up to the one at `position` a sheet of `count` shows: each n-th."""
    step = 1
    while position >= count * step:
        step *= 2
    return step


@dataclass
class _Sheet:
    """A sheet that is being gathered.

    Attributes:
        name: Its file.
        title: What stands above it.
        step: Each how many-th frame is shown.
        pictures: Position, small picture and caption of each.
    """

    name: str
    title: str
    step: int = 1
    pictures: list[tuple[int, str, str]] = field(default_factory=list)


class ContactSheetFile:
    """Open JSON lines, and the sheets that belong to them.

    Args:
        records: The file of lines.
        folder: Of the sheets; created.
        parts: Where small pictures lie; created anew.
        layout: How sheets look.
    """

    def __init__(self, records: RecordFile, folder: Path, parts: Path, layout: Layout) -> None:
        self._folder = folder
        self._parts = parts
        self._layout = layout
        self._lines = LinkedLines(records, folder, "sheet")
        self._maker: Maker | None = None
        self._live = False
        self._open: dict[str, _Sheet] = {}
        self._over: list[_Sheet] = []  # whose last line is not in the file yet
        self._ended: list[str] = []
        try:
            shutil.rmtree(parts, ignore_errors=True)  # of a run that was killed
            parts.mkdir(parents=True)
        except OSError as error:
            why = reason_of(error)
            raise ConfigError(f"cannot create the folder {str(parts)!r}: {why}") from error

    def attach(self, feed: Any) -> None:
        """Take note of whether the inputs come interleaved, and start the process.

        Raises:
            WorkerStartError: It does not start.
        """
        self._live = feed.live
        args = (str(self._folder), str(self._parts), astuple(self._layout))
        self._maker = Maker("contact sheet", _make_sheets, args)

    def clear(self) -> None:
        """Drop what an earlier run left: its lines, and the sheets that belong to them."""
        self.cut(0)

    def scan(self) -> Iterator[Mark]:
        """Yield the whole records on disk, up to the first whose sheet is missing."""
        return self._lines.scan()

    def source_of(self, mark: Mark) -> str:
        """Return the source that a record names."""
        return self._lines.source_of(mark)

    def spelled(self, source: str) -> str:
        """Return how the file spells `source`: as it is."""
        return source

    def cut(self, end: int) -> None:
        """Drop everything behind a mark's `end`, sheets too."""
        self._lines.cut(end)

    def write(self, records: Sequence[Record]) -> None:
        """Gather small pictures and append the lines.

        Raises:
            GepipeError: One of them fails. What is in the file stays an exact prefix.
        """
        self._end_sheets()
        lines, names = [], {}
        for index, source, payload in records:
            picture, video, position, time, text = payload.split(b" ", 4)
            if video == NOTHING:
                number = index // self._layout.count
                sheet = self._sheet(f"{number:03}.jpg", "")
                place, caption = index, f"{index}  {Path(source).name}"
            else:
                path, _, frame = source.rpartition("#frame=")
                sheet = self._sheet(f"{int(video):03}-{_stem(path)}.jpg", Path(path).name)
                place, caption = int(position), f"{frame}  {float(time):.2f} s"
                self._thin(sheet, place)
            if picture != NOTHING:
                sheet.pictures.append((place, picture.decode(), caption))
            names[index] = sheet.name
            lines.append(Record(index, source, text))
        self._lines.write(lines, names)

    def close(self, *, complete: bool) -> None:
        """Bring the lines and all sheets to the disk, or drop those that were not to their end."""
        finish = partial(self._close_sheets, complete=complete)
        close_all(self._lines.close, finish, self._tidy)

    def _sheet(self, name: str, title: str) -> _Sheet:
        """Return the sheet of a name; unless inputs come interleaved, all others are over."""
        sheet = self._open.get(name)
        if sheet is None:
            if not self._live:
                self._over += self._open.values()
                self._open.clear()
            sheet = self._open[name] = _Sheet(name, title)
        return sheet

    def _thin(self, sheet: _Sheet, position: int) -> None:
        """Make room in the sheet of a video that turned out to be longer."""
        step = stride(position, self._layout.count)
        if step == sheet.step:
            return
        sheet.step = step
        kept = []
        for picture in sheet.pictures:
            if picture[0] % step:
                (self._parts / picture[1]).unlink(missing_ok=True)
            else:
                kept.append(picture)
        sheet.pictures = kept

    def _end_sheets(self) -> None:
        """Have sheets made whose lines are all in the file: none appears before its lines."""
        for sheet in self._over:
            assert self._maker is not None
            pictures = [(name, caption) for _, name, caption in sheet.pictures]
            self._maker.send(("sheet", sheet.name, sheet.title, pictures))
            self._ended.append(sheet.name)
        self._over.clear()
        if self._maker is not None:
            self._maker.check()

    def _close_sheets(self, *, complete: bool) -> None:
        maker = self._maker
        if maker is None:
            return
        try:
            if complete or self._live:
                self._over += self._open.values()
                self._open.clear()
                self._end_sheets()
                maker.finish()
            elif not maker.failed:
                self._end_sheets()
                maker.wait_made(self._ended)
        finally:
            self._maker = None
            maker.close()

    def _tidy(self) -> None:
        shutil.rmtree(self._parts, ignore_errors=True)
        with suppress(OSError):  # it holds sheets
            self._folder.rmdir()


def _make_sheets(*args: Any) -> None:
    """Run the process that makes sheets. OpenCV is loaded there only."""
    from gepipe.video import sheets

    sheets.main(*args)


def _stem(path: str) -> str:
    return os.fsencode(Path(path).stem)[:_STEM_BYTES].decode("utf-8", "surrogateescape")
