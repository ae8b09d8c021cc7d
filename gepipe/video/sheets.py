"""The process that puts small pictures together to contact sheets."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import cv2
import numpy as np

from gepipe.errors import GepipeError, reason_of
from gepipe.io.plates import Plate, Style, draw_label, write_label
from gepipe.video.sheetlayout import Layout
from gepipe.video.sinkprocess import serve

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_PAPER: Final = (24, 24, 24)
_GAP: Final = 6
_CAPTION: Final = 14  # size of letters, in pixels
_QUALITY: Final = 90


def main(sock: socket.socket, folder: str, parts: str, layout: tuple[Any, ...]) -> NoReturn:
    """Run the process.

    Args:
        sock: Its end of the channel.
        folder: Where sheets appear.
        parts: Where the small pictures lie.
        layout: The fields of a `Layout`.
    """
    cv2.setNumThreads(1)
    serve(sock, SheetMaker(Path(folder), Path(parts), Layout(*layout)))


class SheetMaker:
    """Makes one sheet for each message `("sheet", file, title, [(picture, caption), …])`."""

    def __init__(self, folder: Path, parts: Path, layout: Layout) -> None:
        self._folder = folder.absolute()
        self._parts = parts.absolute()
        self._columns = layout.columns
        self._width = layout.width
        self._style = Style(font=layout.font)

    def do(self, _kind: str, fields: tuple[Any, ...], _fds: list[int]) -> Iterator[str]:
        """See `gepipe.video.sinkprocess.SinkBody`."""
        name, title, pictures = fields
        place = self._folder / name
        try:
            _, data = cv2.imencode(
                ".jpg", self._sheet(title, pictures), [cv2.IMWRITE_JPEG_QUALITY, _QUALITY]
            )
            part = self._parts / ".sheet"
            with part.open("wb") as file:
                file.write(data.data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(place)
        except OSError as error:
            why = reason_of(error)
            raise GepipeError(
                f"cannot write {str(place)!r}: {why}; run again with --resume once that is mended"
            ) from error
        for picture, _ in pictures:
            (self._parts / picture).unlink(missing_ok=True)
        yield name

    def finish(self) -> Iterator[str]:
        """See `gepipe.video.sinkprocess.SinkBody`."""
        return iter(())

    def rest(self) -> None:
        """See `gepipe.video.sinkprocess.SinkBody`."""

    def drop(self) -> None:
        """See `gepipe.video.sinkprocess.SinkBody`."""

    def _sheet(self, title: str, pictures: Sequence[tuple[str, str]]) -> NDArray[np.uint8]:
        """Return a sheet, (height, width, 3) uint8, BGR."""
        small = [self._read(name) for name, _ in pictures]
        captions = [self._label(caption)[:, : self._width] for _, caption in pictures]
        head = self._label(title) if title else np.zeros((0, 0, 3), np.uint8)
        columns = max(1, min(self._columns, len(small)))
        across = max(columns * (self._width + _GAP), head.shape[1]) + _GAP
        rows = [range(at, min(at + columns, len(small))) for at in range(0, len(small), columns)]
        tops = [_GAP + head.shape[0]]
        for row in rows:
            high = max(small[at].shape[0] + captions[at].shape[0] for at in row)
            tops.append(tops[-1] + high + _GAP)
        sheet = np.full((tops[-1], across, 3), _PAPER, np.uint8)
        self._put(sheet, _GAP, 0, head)
        for row, y in zip(rows, tops, strict=False):
            for column, at in enumerate(row):
                x = _GAP + column * (self._width + _GAP)
                self._put(sheet, x + (self._width - small[at].shape[1]) // 2, y, small[at])
                self._put(sheet, x, y + small[at].shape[0], captions[at])
        return sheet

    def _put(self, sheet: NDArray[np.uint8], x: int, y: int, part: NDArray[np.uint8]) -> None:
        draw_label(sheet, Plate(x, y, x + part.shape[1], y + part.shape[0]), part)

    def _read(self, name: str) -> NDArray[np.uint8]:
        data = np.fromfile(self._parts / name, np.uint8)
        picture = cv2.imdecode(data, cv2.IMREAD_COLOR)
        if picture is None:
            raise GepipeError(f"{str(self._parts / name)!r} was changed while the run went on")
        return np.asarray(picture)

    def _label(self, words: str) -> NDArray[np.uint8]:
        if not self._style.font:
            words = words.encode("ascii", "replace").decode()
        return write_label(words, _CAPTION, self._style, _PAPER, 1 << 14)
