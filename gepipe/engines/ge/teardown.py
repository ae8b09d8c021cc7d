"""Releasing what was opened, last first."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Teardown(ExitStack):
    """Steps that release something; after one that fails, the others are left out.

    What was not released may still use the rest: a model its memory, a stream its context. The end
    of the process frees all of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._failed = False

    def callback(
        self, callback: Callable[_P, _R], /, *args: _P.args, **kwds: _P.kwargs
    ) -> Callable[_P, _R]:
        """Add a step."""

        def step() -> None:
            if self._failed:
                return
            try:
                callback(*args, **kwds)
            except BaseException:
                self._failed = True
                raise

        super().callback(step)
        return callback
