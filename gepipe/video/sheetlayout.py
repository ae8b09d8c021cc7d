"""How contact sheets look."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """How sheets look, as far as who makes them must know.

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
