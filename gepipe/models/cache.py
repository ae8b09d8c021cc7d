"""What is loaded in this process, so that one model is loaded once however many pipelines name it.

    pool = LoadedModels()
    with pool.acquire((digest, device), lambda: session.load(path), session.unload) as model:
        ...

The first to ask loads it, whoever asks meanwhile waits for that, and the last to leave unloads it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(eq=False)
class _Slot:
    """A model that is loaded, or about to be."""

    unload: Callable[[Any], None]
    ready: threading.Lock = field(default_factory=threading.Lock)
    model: Any = None
    is_loaded: bool = False
    users: int = 0


class Lease(Generic[T]):
    """The use of a loaded model. A context manager; closing twice is harmless.

    Attributes:
        model: What was loaded.
    """

    def __init__(self, model: T, leave: Callable[[], None]) -> None:
        self.model = model
        self._leave: Callable[[], None] | None = leave
        self._lock = threading.Lock()

    def close(self) -> None:
        """Give it back; the last user unloads it."""
        with self._lock:
            leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    def __enter__(self) -> T:
        return self.model

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class LoadedModels:
    """Loaded models of this process, by what tells them apart, such as (digest, device, options).

    A process that was forked sees none of its parent's.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._slots: dict[Hashable, _Slot] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def acquire(
        self, key: Hashable, load: Callable[[], T], unload: Callable[[T], None]
    ) -> Lease[T]:
        """Return the use of a model, loading it if nobody has.

        Args:
            key: What it is.
            load: Loads it. Called without the lock of other models.
            unload: Unloads it.

        Raises:
            Exception: What `load` raises. The next to ask tries again.
        """
        if os.getpid() != self._pid:
            self._pid, self._lock, self._slots = os.getpid(), threading.Lock(), {}
        with self._lock:
            slot = self._slots.setdefault(key, _Slot(unload))
            slot.users += 1
        try:
            with slot.ready:
                if not slot.is_loaded:
                    slot.model = load()
                    slot.is_loaded = True
        except BaseException:
            self._release(key, slot)
            raise
        return Lease(slot.model, lambda: self._release(key, slot))

    def _release(self, key: Hashable, slot: _Slot) -> None:
        with self._lock:
            slot.users -= 1
            if slot.users:
                return
            if self._slots.get(key) is slot:
                del self._slots[key]
        if slot.is_loaded:
            slot.unload(slot.model)
