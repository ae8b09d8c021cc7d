"""Inputs that a Python program hands over: paths, bytes, arrays or anything else it can pickle."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from gepipe.errors import ConfigError
from gepipe.io.files import FileReader
from gepipe.io.source import Entry, start_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PATH: Final = b"p"
_BYTES: Final = b"b"
_OBJECT: Final = b"o"


@dataclass(frozen=True)
class MemoryItems:
    """An iterable of inputs, drawn one by one as the pipeline has room for them.

    `os.PathLike` and, but for `texts`, text are paths of files to read. Bytes are the content of a
    file. Anything else, such as an array or a dict of arrays, reaches the first operator as it is.

    Args:
        items: The inputs. May be a generator without an end.
        max_bytes: A larger file is set aside as `too_large` without being read.
        texts: Whether text is an input itself, and no path.
    """

    items: Iterable[Any]
    max_bytes: int = FileReader.max_bytes
    texts: bool = False

    finite: ClassVar[bool] = False

    @property
    def reader(self) -> MemoryReader:
        """Reads what the entries carry."""
        return MemoryReader(FileReader(self.max_bytes, start_folder()))

    def entries(self) -> Iterator[Entry]:
        """Draw the inputs. What is no path is called `input[3]`.

        Raises:
            ConfigError: An input cannot be sent to a worker.
        """
        for number, item in enumerate(self.items):
            if isinstance(item, os.PathLike) or (isinstance(item, str) and not self.texts):
                path = os.fsencode(item)
                yield Entry(os.fsdecode(path), _PATH + path)
                continue
            name = f"input[{number}]"
            if isinstance(item, bytes | bytearray | memoryview):
                yield Entry(name, _BYTES + bytes(item))
                continue
            try:
                content = pickle.dumps(item, protocol=5)
            except Exception as error:  # whatever the object's own code raises
                raise ConfigError(
                    f"{name}: a {type(item).__qualname__} cannot be sent to a worker: {error}; "
                    "expected a path, bytes, an array or a dict of arrays"
                ) from error
            yield Entry(name, _OBJECT + content)


@dataclass(frozen=True)
class MemoryReader:
    """Reads inputs that travel in their entry's payload.

    Args:
        files: Reads those that are paths.
    """

    files: FileReader = field(default_factory=FileReader)

    def read(self, payload: bytes) -> Any:
        """Return a file's content, the bytes or the object.

        Raises:
            ItemError: The input is a path that cannot be read.
        """
        kind, content = payload[:1], payload[1:]
        if kind == _PATH:
            return self.files.read(content)
        return pickle.loads(content) if kind == _OBJECT else content
