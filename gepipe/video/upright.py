"""How a stored picture has to be turned and mirrored to be shown."""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from av.sidedata.sidedata import SideDataContainer

_MATRIX: Final = struct.Struct("=9i")


class Upright(NamedTuple):
    """What to do, in this order.

    Attributes:
        transposed: Whether rows become columns.
        flip_x: Whether to mirror left and right then.
        flip_y: Whether to mirror top and bottom then.
    """

    transposed: bool = False
    flip_x: bool = False
    flip_y: bool = False

    @classmethod
    def of(cls, frame: Any) -> Upright:
        """Return what the display matrix of a decoded frame asks for, to the next right angle."""
        # Not `frame.side_data`, which forms a circle with its frame: that kept frames alive for as
        # long as the garbage collector pleased, and codecs fill in damage with what lies in the
        # memory that they get, which then differed from run to run.
        data = SideDataContainer(frame).get("DISPLAYMATRIX")  # type: ignore[call-arg]
        if data is None:
            return _AS_IT_IS
        # A stored point (x, y) is shown at (a x + c y, b x + d y).
        a, b, _, c, d, *_ = _MATRIX.unpack(bytes(data)[: _MATRIX.size])
        if abs(a) + abs(d) >= abs(b) + abs(c):
            return cls(False, a < 0, d < 0)
        return cls(True, c < 0, b < 0)


_AS_IT_IS: Final = Upright()
