"""Puts parts into batches of equal row shapes, for the next model. Pure: no lock, no clock."""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar

from gepipe.runtime.memory import Shapes

T = TypeVar("T")


class PartBatches(Protocol[T]):
    """Parts that wait for the next model.

    Attributes:
        held: Those that leave with later ones, or when `close` is called, and not before.
    """

    held: int

    def add(self, part: T, shapes: Shapes) -> None:
        """Take the next part."""

    def close(self) -> None:
        """Let all leave that has come so far."""

    def take(self, count: int) -> tuple[list[T], bool]:
        """Return up to `count` parts of one shape, and whether nothing else joins their batch."""
        ...

    def __bool__(self) -> bool:
        """Whether `take` would give something."""
        ...


class SealedBatches(Generic[T]):
    """Batches that depend on the order of the parts alone, so that equal inputs give equal bytes.

    A batch leaves when it is full, or when all that is open is closed: after a number of items that
    the plan fixes.
    """

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self.held = 0
        self._open: dict[Shapes, list[T]] = {}
        self._whole: deque[list[T]] = deque()

    def add(self, part: T, shapes: Shapes) -> None:
        """See `PartBatches.add`."""
        parts = self._open.setdefault(shapes, [])
        parts.append(part)
        self.held += 1
        if len(parts) == self._batch:
            self.held -= len(parts)
            self._whole.append(self._open.pop(shapes))

    def close(self) -> None:
        """See `PartBatches.close`."""
        # Those of one shape after the other: a session that is given the same shape again is fast.
        self._whole.extend(self._open[shapes] for shapes in sorted(self._open))
        self._open, self.held = {}, 0

    def take(self, count: int) -> tuple[list[T], bool]:
        """See `PartBatches.take`."""
        if not self._whole:
            return [], False
        parts = self._whole[0]
        if len(parts) > count:
            self._whole[0] = parts[count:]
            return parts[:count], False
        return self._whole.popleft(), True

    def __bool__(self) -> bool:
        return bool(self._whole)


class LiveBatches(Generic[T]):
    """Batches of what has come so far, for items that come when they like."""

    held = 0

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._added = 0
        self._waiting: dict[Shapes, deque[tuple[int, T]]] = {}  # with their places in the order
        self._joining: Shapes | None = None  # the shape of the batch that is being filled

    def add(self, part: T, shapes: Shapes) -> None:
        """See `PartBatches.add`."""
        self._waiting.setdefault(shapes, deque()).append((self._added, part))
        self._added += 1

    def close(self) -> None:
        """Nothing is held back."""

    def take(self, count: int) -> tuple[list[T], bool]:
        """See `PartBatches.take`; the one that has waited longest, and others of its shape."""
        if count == self._batch:
            self._joining = None  # the one before has left
        if not self._waiting:
            return [], False
        if self._joining is not None and self._joining not in self._waiting:
            self._joining = None
            return [], True  # nothing more of that shape: let it go
        shapes = self._joining
        if shapes is None:
            shapes = min(self._waiting, key=lambda each: self._waiting[each][0][0])
        waiting = self._waiting[shapes]
        taken = [waiting.popleft()[1] for _ in range(min(count, len(waiting)))]
        if not waiting:
            del self._waiting[shapes]
        sealed = bool(self._waiting) and not waiting
        self._joining = None if sealed else shapes
        return taken, sealed

    def __bool__(self) -> bool:
        return bool(self._waiting)
