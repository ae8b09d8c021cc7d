"""An .npy file that grows by rows, and the index that says which input each row belongs to."""

from __future__ import annotations

import io
import json
import struct
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from gepipe.errors import GepipeError
from gepipe.io.jsonl import quoted, scan_json, source_in
from gepipe.io.npy import NpyHeader, format_header, read_header
from gepipe.io.records import close_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gepipe.io.records import RecordFile
    from gepipe.io.sink import Mark, Record

_LENGTH: Final = struct.Struct("<I")


def pack_row(head: bytes, data: bytes) -> bytes:
    """Return a row's payload: its type and shape as JSON, then its bytes."""
    return _LENGTH.pack(len(head)) + head + data


def _unpacked(payload: bytes) -> tuple[bytes, memoryview]:
    start = _LENGTH.size + _LENGTH.unpack_from(payload)[0]
    return payload[_LENGTH.size : start], memoryview(payload)[start:]


class NpyFile:
    """Rows are written before their lines of the index, so a line means that its row is there."""

    def __init__(self, data: RecordFile, index: RecordFile) -> None:
        self._data = data
        self._index = index
        self._head: bytes | None = None
        self._header: NpyHeader | None = None
        self._count = 0

    def clear(self) -> None:
        """Drop what an earlier run left."""
        self.cut(0)

    def scan(self) -> Iterator[Mark]:
        """Yield the index lines whose rows are whole."""
        if (header := self._stored()) is None:
            return iter(())
        rows = None  # as many as the index says, if rows are empty
        if header.row_bytes:
            rows = max((self._data.end - header.offset) // header.row_bytes, 0)
        return islice(scan_json(self._index), rows)

    def source_of(self, mark: Mark) -> str:
        """Return the source that an index line names."""
        return source_in(mark, self._index)

    def spelled(self, source: str) -> str:
        """Return how the index spells `source`: as it is."""
        return source

    def cut(self, end: int) -> None:
        """Drop everything behind a mark's `end`."""
        header = self._stored() if end else None
        self._count = sum(1 for _, line_end in self._index.lines() if line_end <= end)
        self._index.cut(end)
        self._head = self._header = None
        if header is None:
            self._data.cut(0)
            return
        self._begin(json.dumps([header.descr, header.shape[1:]]).encode())
        self._data.cut(header.offset + self._count * header.row_bytes)
        self._store_count()

    def write(self, records: Sequence[Record]) -> None:
        """Append rows, then their lines of the index."""
        rows: list[bytes | memoryview] = []
        if self._header is None:
            rows.append(self._begin(_unpacked(records[0].payload)[0]))
        for record in records:
            head, row = _unpacked(record.payload)
            if head != self._head:
                assert self._head is not None
                raise GepipeError(
                    f"{str(self._data.path)!r}: the result of input {record.index} "
                    f"({record.source!r}) is {_shown(head)}, but the first is "
                    f"{_shown(self._head)}; the npy sink needs rows of one kind; use the jsonl sink"
                )
            rows.append(row)
        end = self._data.end
        self._data.append(b"".join(rows))
        try:
            self._index.append(b"".join([
                b'{"index": %d, "source": %b}\n' % (record.index, quoted(record.source))
                for record in records
            ]))  # fmt: skip
        except BaseException:
            self._data.cut(end)
            raise
        self._count += len(records)
        self._store_count()

    def close(self, *, complete: bool) -> None:
        """Bring both files to the disk and unlock them."""
        closers: list[Callable[[], None]] = [self._data.close, self._index.close]
        if complete and not self._data.end:
            closers.insert(0, partial(self._data.append, format_header("<f4", (0,))))
        close_all(*closers)

    def _begin(self, head: bytes) -> bytes:
        """Take the first row's type and shape for all; return the header of no rows."""
        descr, shape = json.loads(head)
        empty = format_header(descr, (0, *shape))
        self._head = head
        self._header = NpyHeader(descr, fortran_order=False, shape=(0, *shape), offset=len(empty))
        return empty

    def _store_count(self) -> None:
        assert self._header is not None
        shape = (self._count, *self._header.shape[1:])
        self._data.overwrite(0, format_header(self._header.descr, shape))

    def _stored(self) -> NpyHeader | None:
        try:
            return read_header(io.BytesIO(self._data.pread(1 << 16, 0)))
        except ValueError:
            return None


def _shown(head: bytes) -> str:
    descr, shape = json.loads(head)
    return f"{descr} {shape}"
