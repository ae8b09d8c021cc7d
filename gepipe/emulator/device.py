"""Devices and contexts."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gepipe.emulator.handles import Site
from gepipe.emulator.shared import MACHINE, Place, SharedCard

if TYPE_CHECKING:
    from gepipe.emulator.devicememory import DeviceMemory
    from gepipe.emulator.profile import Profile


def visible_devices(count: int) -> list[int]:
    """Return which cards `ASCEND_RT_VISIBLE_DEVICES` leaves, as the CANN manual describes it.

    Ids must ascend, and reading stops at the first bad one: an unknown or repeated id, one out of
    order, or any character that is not a digit.
    """
    text = os.environ.get("ASCEND_RT_VISIBLE_DEVICES")
    if text is None:
        return list(range(count))
    chosen: list[int] = []
    for token in text.split(","):
        if not re.fullmatch(r"[0-9]{1,4}", token):
            break
        if int(token) >= count or (chosen and int(token) <= chosen[-1]):
            break
        chosen.append(int(token))
    return chosen


@dataclass(eq=False)
class Device:
    """An emulated card.

    Attributes:
        index: As the program counts them.
        card: As the profile counts them.
        set_count: How often it was set and not reset.
        busy_s: Until when each engine of the hardware is busy: "compute", "up", "down".
        spent_s: How long each was busy altogether.
        began_s: When each was used first.
        lost: The code that every call returns once the card is lost; 0 while it is not.
    """

    index: int
    card: int
    memory: DeviceMemory
    set_count: int = 0
    streams: int = 0
    events: int = 0
    default: Context | None = None
    busy_s: dict[str, float] = field(default_factory=dict)
    spent_s: dict[str, float] = field(default_factory=dict)
    began_s: dict[str, float] = field(default_factory=dict)
    lost: int = 0
    peers: set[int] = field(default_factory=set)
    _place: Place | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def occupy(self, engine: str, ready_s: float, seconds: float) -> float:
        """Use an engine of the hardware as soon as it is free; return when it is done."""
        with self._lock:
            if self.memory.shared is not None:
                start_s = self.memory.shared.occupy(engine, ready_s, seconds)
            else:
                start_s = max(ready_s, self.busy_s.get(engine, 0.0))
            end_s = start_s + seconds
            self.began_s.setdefault(engine, start_s)
            self.busy_s[engine] = end_s
            self.spent_s[engine] = self.spent_s.get(engine, 0.0) + seconds
        return end_s

    def enter(self, profile: Profile) -> bool:
        """Count this process among those on the card; return whether there is room for it."""
        if self._place is not None:
            return True
        limit = profile.limits.processes
        together = os.environ.get(MACHINE, "")
        prefix = f"gepipe-emulator/{os.getuid()}/{together or profile.name}/{self.card}"
        self._place = Place.take(prefix, limit)
        if self._place is None:
            return False
        if together and profile.seed is None:
            self.memory.share(SharedCard(together, self.card, self._place, limit))
        return True

    def leave(self, *, forked: bool = False) -> None:
        """Make room for another process; a forked child only drops its copy of the place."""
        if self.memory.shared is not None:
            self.memory.shared.close(leave=not forked)
            self.memory.shared = None
        if self._place is not None:
            self._place.close()
            self._place = None


@dataclass(eq=False)
class Context:
    """A context: what the objects of a device belong to.

    Attributes:
        default_stream: The handle of the stream that 0 stands for; 0 before it is used.
    """

    device: Device
    explicit: bool
    site: Site = field(default_factory=Site)
    handle: int = 0
    alive: bool = True
    default_stream: int = 0

    def __str__(self) -> str:
        kind = "context" if self.explicit else "default context"
        return f"{kind} of device {self.device.index} made at {self.site}"
