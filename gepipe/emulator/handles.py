"""Handles: the ints that stand for objects of ACL."""

from __future__ import annotations

import itertools
import sys
from collections import OrderedDict
from typing import Any, Final, TypeVar

from gepipe.emulator import native

_STEP: Final = 64
_SPACE: Final = 1 << 32
_REMEMBERED: Final = 4096
_NOT_THE_PROGRAM: Final = ("gepipe.emulator", "ctypes", "numpy")

T = TypeVar("T")


class Site:
    """The line of the program that a call came from."""

    __slots__ = ("_file", "_line")

    def __init__(self) -> None:
        frame = sys._getframe(1)  # noqa: SLF001 - the one way to find the caller
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(
            _NOT_THE_PROGRAM
        ):
            frame = frame.f_back
        self._file, self._line = frame.f_code.co_filename, frame.f_lineno

    def __str__(self) -> str:
        return f"{self._file}:{self._line}"


class Handles:
    """All live objects by handle, and what became of dead ones.

    The handles are addresses that nothing can access, as a program may not look behind one.
    """

    def __init__(self) -> None:
        self._base = native.reserve(_SPACE)
        self._places = itertools.cycle(range(_STEP, _SPACE, _STEP))
        self._live: dict[int, Any] = {}
        self._dead: OrderedDict[int, str] = OrderedDict()

    def add(self, thing: Any) -> int:
        """Return a new handle of `thing`."""
        while (handle := self._base + next(self._places)) in self._live:
            pass
        self._live[handle] = thing
        return handle

    def get(self, handle: int, kind: type[T]) -> T | None:
        """Return the live object of this kind, or None."""
        thing = self._live.get(handle)
        return thing if isinstance(thing, kind) else None

    def remove(self, handle: int, what: str) -> None:
        """Forget a handle; `what` describes the object and its end."""
        del self._live[handle]
        self._dead[handle] = what
        if len(self._dead) > _REMEMBERED:
            self._dead.popitem(last=False)

    def fate(self, handle: int) -> str:
        """Return what is known of something that is not a live handle of the right kind."""
        if (text := self._dead.get(handle)) is not None:
            return text
        if (thing := self._live.get(handle)) is not None:
            return f"a {type(thing).__name__.lower()}"
        return "never a handle"

    @property
    def region(self) -> tuple[int, int]:
        """The first of the addresses that handles are made of, and their number."""
        return self._base, _SPACE

    def all(self, kind: type[T]) -> list[T]:
        """Return all live objects of a kind, oldest first."""
        return [thing for thing in list(self._live.values()) if isinstance(thing, kind)]

    def close(self) -> None:
        """Give the addresses back."""
        native.unmap(self._base, _SPACE)
        self._live.clear()
