"""The ordered list of a job's inputs, taken once at the start and held outside memory."""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
from array import array
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final

from typing_extensions import Self

from gepipe.errors import ConfigError, GepipeError
from gepipe.io.source import Entry, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Entries hashed together. A changed input list is located to within one such chunk.
CHUNK_COUNT: Final = 256
#: Bytes of a chunk's hash.
HASH_BYTES: Final = 8
_LENGTHS: Final = struct.Struct("<II")
#: Payload length that says: the payload is the source's own bytes.
_SAME: Final = 0xFFFFFFFF


@contextmanager
def _told_of_tempdir() -> Iterator[None]:
    """Say of a file error that the folder for temporary files is meant, and not an input."""
    try:
        yield
    except OSError as error:
        raise GepipeError(
            f"cannot keep the list of inputs in a temporary file: {error.strerror or error}; set "
            "TMPDIR to a folder with more room"
        ) from error


class Manifest:
    """A snapshot of a source's entries: a temporary file that has no name, and a sparse index.

    Memory is 16 bytes for each 256 entries. Nothing is left behind, however the process ends.

    Attributes:
        digest: Hash of all entries in order, in hex.
        hashes: `HASH_BYTES` bytes for each chunk of `CHUNK_COUNT` entries, one after another.
    """

    def __init__(self, source: Source, *, limit: int | None = None) -> None:
        if not getattr(source, "listed", source.finite):
            raise ConfigError("this source has no known end, so its inputs cannot be listed")
        self._count = 0
        self._named = _files(getattr(source, "path", ()), *getattr(source, "paths", ()))
        self._offsets = array("Q")
        hashes = bytearray()
        with _told_of_tempdir():
            self._file = tempfile.TemporaryFile(prefix="gepipe-")  # noqa: SIM115 - see close()
        try:
            entries = source.entries()
            if limit is not None:
                entries = islice(entries, limit)
            offset = 0
            while block := b"".join(_packed(islice(entries, CHUNK_COUNT), self)):
                self._offsets.append(offset)
                hashes += hashlib.blake2b(block, digest_size=HASH_BYTES).digest()
                with _told_of_tempdir():
                    self._file.write(block)
                offset += len(block)
            with _told_of_tempdir():
                self._file.flush()
        except BaseException:
            self._file.close()
            raise
        self._end = offset
        self.hashes = bytes(hashes)
        total = hashlib.blake2b(self.hashes, digest_size=16)
        total.update(self._count.to_bytes(8, "little"))
        self.digest = total.hexdigest()

    @classmethod
    def snapshot(cls, source: Source, *, limit: int | None = None) -> Manifest:
        """Enumerate `source` once, or its first `limit` entries, and keep the list.

        Raises:
            ConfigError: The source finds nothing to read, or has no known end.
            GepipeError: The temporary folder is full.
        """
        return cls(source, limit=limit)

    def __len__(self) -> int:
        return self._count

    def entries(self, first: int = 0, last: int | None = None) -> Iterator[Entry]:
        """Yield the entries `first` to `last`, the latter not included; from anywhere, lazily."""
        last = self._count if last is None else min(last, self._count)
        first = max(first, 0)
        while first < last:
            number = first // CHUNK_COUNT
            block = self._block(number)
            base = number * CHUNK_COUNT
            stop = min(last, base + CHUNK_COUNT)
            yield from islice(_unpacked(block), first - base, stop - base)
            first = stop

    def __getitem__(self, index: int) -> Entry:
        if not 0 <= index < self._count:
            raise IndexError(f"entry {index} of {self._count}")
        return next(self.entries(index, index + 1))

    def is_read_from(self, path: str | os.PathLike[str]) -> bool:
        """Whether the source was told to read the file at `path`, under whatever name."""
        return bool(self._named & _files(path))

    def _block(self, number: int) -> bytes:
        start = self._offsets[number]
        following = number + 1
        end = self._offsets[following] if following < len(self._offsets) else self._end
        return os.pread(self._file.fileno(), end - start, start)

    def close(self) -> None:
        """Give the temporary file back. Closing twice is harmless."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _packed(entries: Iterator[Entry], manifest: Manifest) -> Iterator[bytes]:
    pack = _LENGTHS.pack
    for source, payload, _ in entries:
        manifest._count += 1  # noqa: SLF001 - same module; saves a call an entry
        text = os.fsencode(source)
        if text == payload:
            yield pack(len(text), _SAME)
            yield text
        else:
            yield pack(len(text), len(payload))
            yield text
            yield payload


def _unpacked(block: bytes) -> Iterator[Entry]:
    position = 0
    while position < len(block):
        source_bytes, payload_bytes = _LENGTHS.unpack_from(block, position)
        position += _LENGTHS.size
        text = block[position : position + source_bytes]
        position += source_bytes
        if payload_bytes == _SAME:
            payload = text
        else:
            payload = block[position : position + payload_bytes]
            position += payload_bytes
        yield Entry(os.fsdecode(text), payload)


def _files(*paths: object) -> set[tuple[int, int]]:
    """Return device and inode of those paths that are files."""
    found = set()
    for path in paths:
        if isinstance(path, str | os.PathLike) and os.path.isfile(path):  # noqa: PTH113
            status = os.stat(path)  # noqa: PTH116
            found.add((status.st_dev, status.st_ino))
    return found
