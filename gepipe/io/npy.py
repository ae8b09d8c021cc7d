"""The header of an .npy file, read and written without NumPy.

The supervising process lists and appends arrays without ever touching one, so it does not import
NumPy for them. Format: `numpy.lib.format`, versions 1 to 3.
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import BinaryIO

_MAGIC: Final = b"\x93NUMPY"
_ALIGN: Final = 64
#: Digits kept free for the number of rows, as NumPy itself does for arrays that grow.
_COUNT_DIGITS: Final = 20
_KINDS: Final = "biufc"


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What an .npy file holds.

    Attributes:
        descr: NumPy's type string, such as `<f4`.
        fortran_order: Whether the first axis varies fastest.
        shape: Extents; axis 0 counts the rows.
        offset: Bytes in front of the data.
    """

    descr: str
    fortran_order: bool
    shape: tuple[int, ...]
    offset: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape[1:]) * int(self.descr[2:])


def read_header(file: BinaryIO) -> NpyHeader:
    """Read the header of an array of numbers.

    Raises:
        ValueError: This is no .npy file, or its array does not hold plain numbers.
    """
    start = file.read(8)
    if start[:4] == b"PK\x03\x04":
        raise ValueError("this is an .npz archive; expected one array, as numpy.save writes it")
    if len(start) < 8 or start[:6] != _MAGIC or start[6] not in (1, 2, 3):
        raise ValueError("this is not an .npy file; expected what numpy.save writes")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > 1 << 20:
        raise ValueError(f"its header claims {length:,} bytes; the file is damaged")
    text = file.read(length)
    try:
        fields = ast.literal_eval(text.decode("utf-8" if start[6] == 3 else "latin-1").strip())
        descr, order, shape = fields["descr"], fields["fortran_order"], fields["shape"]
    except (ValueError, SyntaxError, KeyError, TypeError) as error:
        raise ValueError("its header is damaged") from error
    if not isinstance(descr, str) or descr[1:2] not in _KINDS or not descr[2:].isdigit():
        raise ValueError(f"it holds elements of type {descr!r}; expected plain numbers")
    return NpyHeader(descr, bool(order), tuple(shape), 8 + width + length)


def format_header(descr: str, shape: tuple[int, ...]) -> bytes:
    """Return the header of a C-ordered array; as long for any number of rows."""
    longest = len(_fields(descr, (10**_COUNT_DIGITS - 1, *shape[1:])))
    total = -(-(10 + longest + 1) // _ALIGN) * _ALIGN
    text = _fields(descr, shape).ljust(total - 11) + b"\n"
    return _MAGIC + b"\x01\x00" + len(text).to_bytes(2, "little") + text


def _fields(descr: str, shape: tuple[int, ...]) -> bytes:
    return f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}, }}".encode("ascii")
