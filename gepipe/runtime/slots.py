"""Who may touch which slot. Lives in the supervisor alone, so no crash can corrupt it."""

from __future__ import annotations

from enum import Enum

from gepipe.errors import InternalError


class Slot(Enum):
    """State of one half of a double buffer."""

    FREE = "free"
    FILLING = "filling"  # its producers write rows
    READY = "ready"  # whole, waits for its consumer
    DRAINING = "draining"  # its consumers read rows


_ALLOWED: dict[Slot, set[Slot]] = {
    Slot.FREE: set(),  # only `acquire` takes a free one
    Slot.FILLING: {Slot.READY, Slot.FREE},  # FREE: no item of it is left
    Slot.READY: {Slot.DRAINING, Slot.FREE},
    Slot.DRAINING: {Slot.FREE},
}


class SlotTable:
    """State of every slot of one link."""

    def __init__(self, depth: int) -> None:
        self._state = [Slot.FREE] * depth
        self._free = list(range(depth - 1, -1, -1))

    def acquire(self) -> int | None:
        """Take a free slot to fill, or None if there is none."""
        if not self._free:
            return None
        slot = self._free.pop()
        self._state[slot] = Slot.FILLING
        return slot

    def move(self, slot: int, to: Slot) -> None:
        """Advance a slot. Raises `InternalError` for a move that the protocol does not know."""
        now = self._state[slot]
        if to not in _ALLOWED[now]:
            raise InternalError(f"slot {slot} cannot go from {now.value} to {to.value}")
        self._state[slot] = to
        if to is Slot.FREE:
            self._free.append(slot)

    @property
    def used(self) -> int:
        """Slots that are not free."""
        return len(self._state) - len(self._free)

    def count(self, state: Slot) -> int:
        """How many slots are in `state`."""
        return self._state.count(state)
