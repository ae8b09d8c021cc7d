"""The two classes of items, real-time and bulk, and what each leaves for the other."""

from __future__ import annotations

from typing import Final

from gepipe.errors import InternalError
from gepipe.runtime.slots import Slot, SlotTable

#: Of so many picks made while both classes wait, one is bulk.
SHARE: Final = 8


class Turns:
    """Whose turn it is: real-time before bulk, but bulk at least once in `SHARE` picks."""

    def __init__(self) -> None:
        self._passed = 0  # picks of real-time in a row while bulk waited

    def choose(self, *, realtime: bool, bulk: bool) -> bool | None:
        """Return which of the classes that can go comes next: True is real-time, None nobody."""
        if realtime and not (bulk and self._passed >= SHARE - 1):
            return True
        return False if bulk else None

    def took(self, realtime: bool, *, bulk: bool) -> None:
        """Say which class went, and whether bulk could have gone."""
        self._passed = self._passed + 1 if realtime and bulk else 0


class SharedSlots(SlotTable):
    """Slots of which each class leaves at least one to the other."""

    def __init__(self, depth: int) -> None:
        if depth < 2:
            raise InternalError(f"{depth} slots for two classes; please report this")
        super().__init__(depth)
        self._most = depth - 1
        self._is_realtime = [False] * depth
        self._held = [0, 0]

    def has_room(self, realtime: bool) -> bool:
        """Whether a batch of a class can have a slot."""
        return bool(self._free) and self._held[realtime] < self._most

    def acquire_for(self, realtime: bool) -> int:
        """Take a slot to fill; there must be room."""
        slot = self.acquire()
        if slot is None:
            raise InternalError("no slot is free; please report this")
        self._is_realtime[slot] = realtime
        self._held[realtime] += 1
        return slot

    def move(self, slot: int, to: Slot) -> None:
        """Advance a slot; see `SlotTable.move`."""
        super().move(slot, to)
        if to is Slot.FREE:
            self._held[self._is_realtime[slot]] -= 1
