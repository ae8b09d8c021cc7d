"""The process that puts small pictures together to contact sheets."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import cv2
import numpy as np

from gepipe.errors import GepipeError
from gepipe.io.plates import Plate, Style, draw_label, write_label
from gepipe.video.contactfile import Layout
from gepipe.video.maker import serve

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
        """See `gepipe.video.maker.Workshop`."""
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
            why = (error.strerror or str(error)).lower()
            raise GepipeError(
                f"cannot write {str(place)!r}: {why}; run again with --resume once that is mended"
            ) from error
        for picture, _ in pictures:
            (self._parts / picture).unlink(missing_ok=True)
        yield name

    def finish(self) -> Iterator[str]:
        """See `gepipe.video.maker.Workshop`."""
        return iter(())

    def drop(self) -> None:
        """See `gepipe.video.maker.Workshop`."""

    def _sheet(self, title: str, pictures: Sequence[tuple[str, str]]) -> NDArray[np.uint8]:
        """Return a sheet, (height, width, 3) uint8, BGR."""
        small = [self._read(name) for name, _ in pictures]
        label = self._label(title)
        top = _GAP + (label.shape[0] if title else 0)
        height = max((each.shape[0] for each in small), default=0) + label.shape[0] + _GAP
        columns = max(1, min(self._columns, len(small)))
        rows = -(-len(small) // columns)
        across = columns * (self._width + _GAP) + _GAP
        sheet = np.full((top + rows * height + _GAP, across, 3), _PAPER, np.uint8)
        if title:
            self._put(sheet, _GAP, 0, label[:, : across - _GAP])
        for number, (picture, (_, caption)) in enumerate(zip(small, pictures, strict=True)):
            x = _GAP + number % columns * (self._width + _GAP)
            y = top + number // columns * height
            across_free = (self._width - picture.shape[1]) // 2
            self._put(sheet, x + across_free, y, picture)
            self._put(sheet, x, y + picture.shape[0], self._label(caption)[:, : self._width])
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
