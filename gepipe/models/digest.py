"""Hashes of files: what a conversion is found again by, and how damage is noticed."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from gepipe.errors import ModelLoadError

_READ_BYTES: Final = 1 << 20


def file_digest(path: Path) -> str:
    """Return a hash of a file's contents.

    Raises:
        OSError: It cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def digest_of(model: Path, external: tuple[str, ...] = ()) -> str:
    """Return a hash of a model's contents, files with weights beside it included.

    Raises:
        ModelLoadError: One of them cannot be read.
    """
    digests = []
    for path in (model, *(model.parent / name for name in external)):
        try:
            stat = path.stat()
            digests.append(_remembered(path, stat.st_ino, stat.st_size, stat.st_mtime_ns))
        except OSError as error:
            raise ModelLoadError(f"{path}: {error.strerror}") from error
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


@cache
def _remembered(path: Path, *_unchanged: int) -> str:
    return file_digest(path)
