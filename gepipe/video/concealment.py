"""What decoders say of parts of frames that they made up."""

from __future__ import annotations

from typing import Any, Final

#: How FFmpeg's decoders begin to say so.
_BEGINNINGS: Final = ("concealing ", "error while decoding", "ignoring overflow")


class Concealment:
    """Remembers it from a packet until the frame of that packet comes, which may be much later."""

    def __init__(self, lines: list[Any]) -> None:
        """Hear nothing yet.

        Args:
            lines: What FFmpeg says; emptied here.
        """
        self._lines = lines
        self._said: dict[int | None, str] = {}

    def hear(self, pts: int | None) -> None:
        """Take what was said while the packet with a time stamp was decoded."""
        if not self._lines:
            return
        for _, _, text in self._lines:
            if text.lstrip().startswith(_BEGINNINGS):
                self._said.setdefault(pts, text.strip())
        self._lines.clear()

    def ignore(self) -> None:
        """Drop what was said of no frame."""
        self._lines.clear()

    def of(self, pts: int | None) -> str:
        """Return what was said of the frame with a time stamp, which is the next one shown."""
        if not self._said:
            return ""
        said = self._said.pop(pts, "") or self._said.pop(None, "")
        if pts is not None:  # frames that did not come
            self._said = {each: text for each, text in self._said.items() if (each or 0) > pts}
        return said
