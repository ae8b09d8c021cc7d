"""The JSON lines sink: one object a line, readable and complete at any moment."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, ClassVar

from gepipe.errors import ConfigError, ItemError
from gepipe.io.records import RecordFile
from gepipe.io.sink import Mark, Record
from gepipe.io.source import PLUGIN_CONFIG

_HEAD = b'{"index": '


@dataclass(frozen=True)
class JsonlSink:
    r"""JSON lines: `{"index": 0, "source": "a.jpg", "result": {…}}`, in input order.

    Text is UTF-8. Bytes of a file name that are not UTF-8 are written as `\udc80` … `\udcff`, so
    that `os.fsencode(json.loads(line)["source"])` is the name again. Arrays become lists; numbers
    that JSON does not know (NaN, infinities) become `null`.

    Args:
        path: The file to write. Failed inputs are listed beside it, in `<stem>.failures.jsonl`.
    """

    path: str

    shorthand: ClassVar[str] = "path"
    __pydantic_config__: ClassVar[dict[str, str]] = PLUGIN_CONFIG

    @property
    def encoder(self) -> Callable[[Any], bytes]:
        """Encodes a result as JSON."""
        return encode_json

    def open(self) -> JsonlFile:
        """Open and lock the output."""
        return JsonlFile(RecordFile(self.path))


class JsonlFile:
    """An open JSON lines file."""

    def __init__(self, file: RecordFile) -> None:
        self._file = file

    def clear(self) -> None:
        """Drop what an earlier run left."""
        self._file.cut(0)

    def scan(self) -> Iterator[Mark]:
        """Yield the whole records on disk."""
        return scan_json(self._file)

    def source_of(self, mark: Mark) -> str:
        """Return the source that a record names."""
        return source_in(mark, self._file)

    def spelled(self, source: str) -> str:
        """Return how the file spells `source`: as it is."""
        return source

    def cut(self, end: int) -> None:
        """Drop everything behind a mark's `end`."""
        self._file.cut(end)

    def write(self, records: Sequence[Record]) -> None:
        """Append records, in one system call."""
        self._file.append(b"".join([
            b'{"index": %d, "source": %b, "result": %b}\n' % (index, quoted(source), payload)
            for index, source, payload in records
        ]))  # fmt: skip

    def close(self, *, complete: bool) -> None:  # noqa: ARG002 - the file is complete at any moment
        """Bring the file to the disk and unlock it."""
        self._file.close()


def scan_json(file: RecordFile) -> Iterator[Mark]:
    """Yield the whole records of a file whose lines begin with their index."""
    for line, end in file.lines():
        if not (line.startswith(_HEAD) and line.endswith(b"}\n")):
            return
        digits = line[len(_HEAD) : line.find(b",", len(_HEAD))]
        if not digits.isdigit():
            return
        yield Mark(int(digits), end, line)


def source_in(mark: Mark, file: RecordFile) -> str:
    """Return the source that a record of `file` names.

    Raises:
        ConfigError: It names none: the file was changed after the run.
    """
    try:
        return str(json.loads(mark.raw)["source"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise damaged(mark, file) from error


def damaged(mark: Mark, file: RecordFile) -> ConfigError:
    """Return the error for a record that names no source."""
    return ConfigError(
        f"cannot resume: {str(file.path)!r} holds a record {mark.index:,} without its source; "
        "run without --resume to start anew"
    )


def quoted(text: str) -> bytes:
    """Return `text` as a JSON string in UTF-8, lone surrogates escaped."""
    return encode_basestring(text).encode("utf-8", "backslashreplace")


def encode_json(value: Any) -> bytes:
    """Return a result as one line of JSON in UTF-8.

    Raises:
        ItemError: `not_json`: the result holds something that JSON has no form for.
    """
    try:
        text = _dumps(value)
    except ValueError:  # a NaN or an infinity somewhere, or a circle
        try:
            text = _dumps(_finite(value))
        except (ValueError, TypeError, RecursionError) as error:
            raise _refused(error) from error
    except (TypeError, RecursionError) as error:
        raise _refused(error) from error
    # A lone surrogate's Python escape is its JSON escape too.
    return text.encode("utf-8", "backslashreplace")


def _refused(error: Exception) -> ItemError:
    return ItemError(
        "not_json",
        f"the result cannot be written as JSON: {error}; return numbers, text, lists, dicts or "
        "arrays from the last post operator",
    )


def _plain(value: Any) -> Any:
    """Turn NumPy arrays and scalars, sets and paths into what JSON knows."""
    if hasattr(value, "tolist"):  # by its shape, so that NumPy need not be imported
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(value)
    if hasattr(value, "__fspath__"):
        return str(value)
    raise TypeError(f"{type(value).__qualname__} is not JSON")


_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_plain).encode


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str | int) or value is None:
        return value
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return _finite(_plain(value))
