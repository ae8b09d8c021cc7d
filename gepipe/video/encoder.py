"""The encoder process: takes drawn frames out of shared memory, and makes films of them."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import cv2
import numpy as np

from gepipe.runtime.memory import SharedBuffer
from gepipe.video.film import Film, Quality, chosen_encoder
from gepipe.video.sinkprocess import serve

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Frames whose memory is given back at once, so that decoders and workers are woken less often: the
#: processes of a run spent a fifteenth of their time on that.
_TOGETHER: Final = 8


def main(sock: socket.socket, folder: str, parts: str, crf: int, preset: str) -> NoReturn:
    """Run the process.

    Args:
        sock: Its end of the channel.
        folder: Where films appear.
        parts: Where they are made.
        crf: See `Quality`.
        preset: See `Quality`.
    """
    cv2.setNumThreads(1)
    serve(sock, Encoder(folder, parts, Quality(crf, preset)))


class Encoder:
    """Films that are being made; usually one, several of live sources.

    Messages: `("memory", nbytes)` with the descriptors of the frames' memory and of the pipe for
    offsets, `("frames", film, [(offset, height, width, time), …])`, `("end", film)`.
    """

    def __init__(self, folder: str, parts: str, quality: Quality) -> None:
        self._folder = Path(folder).absolute()
        self._parts = Path(parts).absolute()
        self._quality = quality
        self._films: dict[str, Film] = {}
        self._begun = 0
        self._memory: SharedBuffer | None = None
        self._freed = -1
        self._encoded: list[int] = []  # offsets of frames whose memory was not given back yet
        self._encoder = ""

    def do(self, kind: str, fields: tuple[Any, ...], fds: list[int]) -> Iterator[str]:
        """See `gepipe.video.sinkprocess.SinkBody`."""
        if kind == "memory":
            os.chdir(self._parts)
            self._memory = SharedBuffer(fds[0], fields[0])
            self._freed = fds[1]
            self._encoder = chosen_encoder()
        elif kind == "frames":
            self._add(*fields)
        elif kind == "end":
            yield from self._finish(fields[0])

    def finish(self) -> Iterator[str]:
        """See `gepipe.video.sinkprocess.SinkBody`."""
        for name in list(self._films):
            yield from self._finish(name)

    def rest(self) -> None:
        """See `gepipe.video.sinkprocess.SinkBody`: gives the memory of encoded frames back."""
        encoded, self._encoded = self._encoded, []
        if encoded:
            with suppress(BrokenPipeError):  # the run is over, and the memory of no use any more
                os.write(self._freed, struct.pack(f"={len(encoded)}Q", *encoded))

    def drop(self) -> None:
        """See `gepipe.video.sinkprocess.SinkBody`."""
        for film in self._films.values():
            film.drop()

    def _add(self, name: str, frames: Sequence[tuple[int, int, int, float]]) -> None:
        assert self._memory is not None
        film = self._films.get(name)
        if film is None:
            self._begun += 1
            part = f"{self._begun}.mp4"
            film = Film(self._folder / name, part, self._quality, self._encoder)
            self._films[name] = film
        for offset, height, width, time_s in frames:
            flat = np.frombuffer(self._memory.map, np.uint8, height * width * 3, offset)
            film.add(flat.reshape(height, width, 3), time_s)
            self._encoded.append(offset)
            if len(self._encoded) >= _TOGETHER:
                self.rest()

    def _finish(self, name: str) -> Iterator[str]:
        self.rest()
        film = self._films.get(name)
        if film is not None:
            film.finish()
            del self._films[name]
            yield name
