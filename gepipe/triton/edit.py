"""Changes of a text that leave all the rest of it as it is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Put `text` in place of what stands from `start` to `end`."""

    start: int
    end: int
    text: str

    def meets(self, other: Edit) -> bool:
        """Whether both change the same place."""
        return self.start < other.end and other.start < self.end


@dataclass(slots=True)
class Draft:
    """A text under change that still knows where each character stood at first.

    Attributes:
        original: The text as it was.
        text: As it is now.
    """

    original: str
    text: str = ""
    _origins: list[int] = field(default_factory=list)
    _lines: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.text = self.original
        self._origins = list(range(len(self.original) + 1))
        self._lines = [0, *(at + 1 for at, c in enumerate(self.original) if c == "\n")]

    def apply(self, edits: Iterable[Edit]) -> None:
        """Make changes, which must not meet."""
        for edit in sorted(edits, reverse=True):
            origin = self._origins[edit.start]
            self.text = self.text[: edit.start] + edit.text + self.text[edit.end :]
            self._origins[edit.start : edit.end] = [origin] * len(edit.text)

    def place(self, offset: int) -> tuple[int, int]:
        """Return the line and column, from 1, where something stood in the original."""
        origin = self._origins[min(offset, len(self.text))]
        line = bisect_right(self._lines, origin)
        return line, origin - self._lines[line - 1] + 1
