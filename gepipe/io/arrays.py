"""Arrays as inputs and as results: the rows of .npy files."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from gepipe.errors import ConfigError, ItemError, reason_of
from gepipe.io.failures import beside
from gepipe.io.npy import NpyHeader, read_header
from gepipe.io.npyfile import NpyFile, pack_row
from gepipe.io.records import RecordFile
from gepipe.io.source import PLUGIN_CONFIG, Entry, start_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

_ROW: Final = struct.Struct("<Q")


@dataclass(frozen=True)
class NpyRows:
    """The rows of an .npy file: `data[0]`, `data[1]`, … each is an input.

    Args:
        path: The file. Its array holds plain numbers; arrays of Python objects are refused.
    """

    path: str

    shorthand: ClassVar[str] = "path"
    finite: ClassVar[bool] = True
    __pydantic_config__: ClassVar[dict[str, str]] = PLUGIN_CONFIG

    @property
    def header(self) -> NpyHeader:
        """What the file says it holds.

        Raises:
            ConfigError: The file cannot be read, or does not hold rows of numbers.
        """
        try:
            with Path(self.path).open("rb") as file:
                header = read_header(file)
                present = os.fstat(file.fileno()).st_size - header.offset
        except OSError as error:
            raise ConfigError(f"{self.path!r}: {reason_of(error)}") from error
        except ValueError as error:
            raise ConfigError(f"{self.path!r}: {error}") from error
        if not header.shape or not header.shape[0]:
            raise ConfigError(f"{self.path!r}: no rows in an array of shape {header.shape}")
        if present < header.row_bytes * header.shape[0]:
            raise ConfigError(
                f"{self.path!r}: truncated: {present:,} bytes of data, but shape {header.shape} "
                f"of {header.descr} takes {header.row_bytes * header.shape[0]:,}"
            )
        return header

    @property
    def reader(self) -> NpyReader:
        """Reads a row as an array."""
        return NpyReader(self.path, self.header, start_folder())

    def entries(self) -> Iterator[Entry]:
        """Enumerate the rows.

        Raises:
            ConfigError: The file cannot be read, or does not hold rows of numbers.
        """
        for row in range(self.header.shape[0]):
            yield Entry(f"{self.path}[{row}]", _ROW.pack(row))


@dataclass
class NpyReader:
    """Reads rows of one .npy file. The payload is the row's number.

    Args:
        path: The file.
        header: What it held when the job began.
        folder: Where a relative path starts, wherever an operator goes meanwhile.
    """

    path: str
    header: NpyHeader
    folder: str = ""
    _file: RowFile | None = field(default=None, init=False, repr=False, compare=False)

    def read(self, payload: bytes) -> NDArray[Any]:
        """Return a row; the array is the caller's own.

        Raises:
            ItemError: `missing`, `unreadable` or `truncated`.
        """
        (row,) = _ROW.unpack(payload)
        try:
            if self._file is None:
                place = os.path.join(self.folder, self.path)  # noqa: PTH118 - both are text
                self._file = RowFile(place, self.header)
            return self._file.row(row)
        except FileNotFoundError as error:
            raise ItemError("missing", f"{self.path!r} does not exist any more") from error
        except OSError as error:
            why = reason_of(error)
            raise ItemError("unreadable", f"cannot read {self.path!r}: {why}") from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}


class RowFile:
    """An open .npy file."""

    def __init__(self, path: str, header: NpyHeader) -> None:
        self._header = header
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def row(self, number: int) -> NDArray[Any]:
        """Read one row.

        Not through a memory map: where the file shrinks, reading one kills the process.
        """
        import numpy as np

        header = self._header
        if header.fortran_order:
            whole = np.load(self._path, mmap_mode="r", allow_pickle=False)
            return np.array(whole[number], order="C")
        data = bytearray(header.row_bytes)
        done = os.preadv(self._fd, [data], header.offset + number * header.row_bytes)
        if done < len(data):
            raise ItemError("truncated", f"{self._path!r} ends in row {number}; it has shrunk")
        return np.frombuffer(data, header.descr).reshape(header.shape[1:])

    def __del__(self) -> None:
        if (fd := getattr(self, "_fd", -1)) >= 0:
            os.close(fd)


@dataclass(frozen=True)
class NpySink:
    """One .npy file with a row for each result, and `<stem>.index.jsonl` that says whose it is.

    Row i of the array belongs to the input in line i of the index:
    `{"index": 7, "source": "b.jpg"}`. Failed inputs have no row. All rows have the shape and type
    of the first. The array can be loaded at any moment, also while the run goes on.

    Args:
        path: The file to write. Failed inputs are listed beside it, in `<stem>.failures.jsonl`.
        tensor: Which array of a result that has several; empty where there is only one.
    """

    path: str
    tensor: str = ""

    shorthand: ClassVar[str] = "path"
    __pydantic_config__: ClassVar[dict[str, str]] = PLUGIN_CONFIG

    @property
    def encoder(self) -> ArrayEncoder:
        """Encodes a result's array as its bytes."""
        return ArrayEncoder(self.tensor)

    @property
    def neighbours(self) -> tuple[Path, ...]:
        """The index."""
        return (beside(self.path, ".index.jsonl"),)

    def open(self) -> NpyFile:
        """Open and lock the output and its index."""
        data = RecordFile(self.path)
        try:
            return NpyFile(data, RecordFile(*self.neighbours))
        except BaseException:
            data.close()
            raise


@dataclass(frozen=True)
class ArrayEncoder:
    """Turns a result into the bytes of one array.

    Args:
        tensor: Key of the array in the result, or empty for the only one.
    """

    tensor: str = ""

    def __call__(self, result: Any) -> bytes:
        """Return the array's type, shape and bytes.

        Raises:
            ItemError: `not_an_array`: there is no such array in the result.
        """
        import numpy as np

        array = np.asarray(self._chosen(result))
        if array.dtype.kind not in "biufc":
            raise ItemError(
                "not_an_array",
                f"the npy sink takes arrays of numbers; got {array.dtype} from "
                f"{type(result).__qualname__}; let the post stage end with numbers, or use the "
                "jsonl sink",
            )
        head = json.dumps([array.dtype.str, array.shape]).encode()
        return pack_row(head, array.tobytes())

    def _chosen(self, result: Any) -> Any:
        if not isinstance(result, dict):
            return result
        found: Mapping[str, Any] = result
        if self.tensor:
            if self.tensor not in found:
                raise ItemError(
                    "not_an_array",
                    f"the result has no {self.tensor!r}; it has {sorted(found)}; set the npy "
                    "sink's tensor to one of them",
                )
            return found[self.tensor]
        if len(found) != 1:
            raise ItemError(
                "not_an_array",
                f"the result has {len(found)} values: {sorted(found)}; set the npy sink's tensor "
                "to the one to write",
            )
        return next(iter(found.values()))
