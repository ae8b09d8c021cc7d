"""The open files of the sink contact_sheet: which small picture goes into which sheet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gepipe.io.drawnfolder import DrawnFolder, stem_of
from gepipe.io.linked import LinkedLines
from gepipe.io.records import close_all
from gepipe.io.sink import Record
from gepipe.video.sheetlayout import Layout
from gepipe.video.sinkprocess import SinkProcess

if TYPE_CHECKING:
    from gepipe.io.records import RecordFile

#: What stands in a payload for what there is not.
NOTHING: Final = b"-"


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


class ContactSheetFile(LinkedLines):
    """Open JSON lines, and the sheets that belong to them.

    Args:
        records: The file of lines.
        drawn: The folder of sheets; created. Small pictures lie in its parts.
        layout: How sheets look.
    """

    def __init__(self, records: RecordFile, drawn: DrawnFolder, layout: Layout) -> None:
        super().__init__(records, drawn.path, "sheet")
        self._drawn = drawn
        self._layout = layout
        self._process: SinkProcess | None = None
        self._live = False
        self._open: dict[str, _Sheet] = {}
        self._over: list[_Sheet] = []  # whose last line is not in the file yet
        self._ended: list[str] = []
        drawn.create()

    def attach(self, feed: Any) -> None:
        """Take note of whether the inputs come interleaved, and start the process.

        Raises:
            WorkerStartError: It does not start.
        """
        self._live = feed.live
        args = (str(self._drawn.path), str(self._drawn.parts), astuple(self._layout))
        self._process = SinkProcess("contact sheet", _make_sheets, args)

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
                sheet = self._sheet(f"{int(video):03}-{stem_of(path)}.jpg", Path(path).name)
                place, caption = int(position), f"{frame}  {float(time):.2f} s"
                self._thin(sheet, place)
            if picture != NOTHING:
                sheet.pictures.append((place, picture.decode(), caption))
            names[index] = sheet.name
            lines.append(Record(index, source, text))
        self.append(lines, names)

    def request_stop(self) -> None:
        """Ask not to wait for a process that does nothing. Safe in any thread."""
        process = self._process
        if process is not None:
            process.request_stop()

    def close(self, *, complete: bool) -> None:
        """Bring the lines and all sheets to the disk, or drop those that were not to their end."""
        finish = partial(self._close_sheets, complete=complete)
        close_all(self.close_lines, finish, self._drawn.tidy)

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
                (self._drawn.parts / picture[1]).unlink(missing_ok=True)
            else:
                kept.append(picture)
        sheet.pictures = kept

    def _end_sheets(self) -> None:
        """Have sheets made whose lines are all in the file: none appears before its lines."""
        for sheet in self._over:
            assert self._process is not None
            pictures = [(name, caption) for _, name, caption in sheet.pictures]
            self._process.send(("sheet", sheet.name, sheet.title, pictures))
            self._ended.append(sheet.name)
        self._over.clear()
        if self._process is not None:
            self._process.check()

    def _close_sheets(self, *, complete: bool) -> None:
        process = self._process
        if process is None:
            return
        try:
            if complete or self._live:
                self._over += self._open.values()
                self._open.clear()
                self._end_sheets()
                process.finish()
            elif not process.failed:
                self._end_sheets()
                process.wait_made(self._ended)
        finally:
            self._process = None
            process.close()


def _make_sheets(*args: Any) -> None:
    """Run the process that makes sheets. OpenCV is loaded there only."""
    from gepipe.video import sheets

    sheets.main(*args)
