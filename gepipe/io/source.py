"""What a source is: a list of inputs the main process enumerates and the workers read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Unknown keys of a source or a sink are errors. Read by pydantic, which only the spec imports.
PLUGIN_CONFIG: Final[dict[str, str]] = {"extra": "forbid"}


def start_folder() -> str:
    """Return the current directory, for a reader to keep; nothing where it has been removed."""
    try:
        return os.getcwd()  # noqa: PTH109 - imported by every worker, and text is wanted
    except OSError:
        return ""


class Entry(NamedTuple):
    """One input of a job.

    Attributes:
        source: What people see in results, failures and messages: a path decoded by
            `os.fsdecode`, so that bytes outside UTF-8 survive as lone surrogates.
        payload: What the source's reader needs to read the input, such as the path's bytes: a
            plain value.
        shapes: Row shape of each input of the model, in the model's order; empty where nothing
            tells it before the input is read.
    """

    source: str
    payload: Any
    shapes: tuple[tuple[int, ...], ...] = ()


class Reader(Protocol):
    """Reads inputs in a worker. Picklable, and holds no open handle when pickled."""

    def read(self, payload: Any) -> Any:
        """Return the input that `payload` stands for: a file's bytes, or an array.

        Raises:
            ItemError: This input cannot be read; the others are not affected.
        """
        ...


@runtime_checkable
class Source(Protocol):
    """An ordered list of inputs. The same source gives the same entries in the same order."""

    @property
    def finite(self) -> bool:
        """Whether the list is known before the start, so that a job over it can be resumed."""
        ...

    @property
    def reader(self) -> Reader:
        """What reads the entries' payloads in the workers."""
        ...

    def entries(self) -> Iterator[Entry]:
        """Enumerate the inputs; in the main process, without reading them.

        Raises:
            ConfigError: There is nothing to read where the source was told to look.
        """
        ...
