"""Tells what kind of file some bytes are, and reads the header of an image among them."""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable

from gepipe.errors import ItemError
from gepipe.ops.header import Header
from gepipe.ops.header_jpeg import read_jpeg
from gepipe.ops.header_other import PNM, read_bmp, read_gif, read_pnm, read_tiff, read_webp
from gepipe.ops.header_png import read_png

SUPPORTED = "JPEG, PNG, WebP, BMP, TIFF, GIF, PNM"
_Reader = Callable[[bytes], Header]
_SIGNATURES: tuple[tuple[bytes, str, _Reader], ...] = (
    (b"\xff\xd8\xff", "JPEG", read_jpeg),
    (b"\x89PNG\r\n\x1a\n", "PNG", read_png),
    (b"GIF87a", "GIF", read_gif),
    (b"GIF89a", "GIF", read_gif),
    (b"II*\0", "TIFF", read_tiff),
    (b"MM\0*", "TIFF", read_tiff),
    (b"II+\0", "TIFF", read_tiff),
    (b"MM\0+", "TIFF", read_tiff),
    (b"BM", "BMP", read_bmp),
)
_OTHERS = (
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive (or an Office document)"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"version https://git-lfs", "a Git LFS pointer; fetch the real file with git lfs pull"),
    (b"<?xml", "an XML or SVG document"),
    (b"<svg", "an SVG document"),
    (b"<!doctype html", "an HTML page"),
    (b"<html", "an HTML page"),
    (b"8BPS", "a Photoshop document"),
    (b"\0\0\0\x0cjP", "a JPEG 2000 image"),
)


def read_header(data: bytes) -> Header:
    """Return what the header says.

    Args:
        data: A whole file.

    Raises:
        ItemError: `empty`, `not_an_image`, or `truncated` where the data ends inside the header.
    """
    if not data:
        raise ItemError("empty", "the file is empty (0 bytes)")
    for signature, name, reader in _SIGNATURES:
        if data.startswith(signature):
            return _read(data, name, reader)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _read(data, "WebP", read_webp)
    if PNM.match(data):
        return _read(data, "PNM", read_pnm)
    if len(data) < 12:
        for signature, name, _ in (*_SIGNATURES, (b"RIFF", "WebP", read_webp)):
            if signature.startswith(data) or (name == "WebP" and data.startswith(signature)):
                raise ItemError("truncated", _cut(data, name))
    raise ItemError("not_an_image", f"{_describe(data)}; expected one of {SUPPORTED}")


def _read(data: bytes, name: str, reader: _Reader) -> Header:
    try:
        header = reader(data)
    except (struct.error, IndexError):
        raise ItemError("truncated", _cut(data, name)) from None
    if header.height < 1 or header.width < 1:
        raise ItemError(
            "unreadable",
            f"the {name} header says {header.width}x{header.height} pixels; the file is damaged",
        )
    return header


def _cut(data: bytes, name: str) -> str:
    return f"the {name} file is cut off inside its header ({len(data)} bytes)"


def _describe(data: bytes) -> str:
    start = data[:64].lstrip()
    for signature, name in _OTHERS:
        if start.lower().startswith(signature.lower()):
            return f"not an image but {name}"
    if data[4:8] == b"ftyp":
        brand = data[8:12].decode("latin-1").strip()
        if brand in ("heic", "heix", "mif1", "msf1", "avif", "avis"):
            return f"a {'AVIF' if brand.startswith('avi') else 'HEIC'} image, not supported"
        return "not an image but a video"
    if not data.strip(b"\0"):
        return "not an image: the file holds zeros only"
    if (text := _text(data[:64])) is not None:
        return f"not an image but text, starting with {text[:24]!r}"
    return f"not an image: unknown format, starting with the bytes {data[:8].hex(' ')}"


def _text(start: bytes) -> str | None:
    """Return the beginning of a file as text, None if it is none."""
    if any(byte < 32 and byte not in b"\t\n\r\f" for byte in start):
        return None
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(start)  # may end inside a character
    except UnicodeDecodeError:
        return None
