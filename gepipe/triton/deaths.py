"""How often something has died lately, and how long to wait before it is started again."""

from __future__ import annotations

from typing import Final

_WINDOW_S: Final = 600.0
#: What dies more often than this within ten minutes is not started again.
MOST_DEATHS: Final = 5


class Deaths:
    """The deaths of one model, or of a server, within ten minutes."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def __len__(self) -> int:
        """Return how many there were up to the last one."""
        return len(self._times)

    def add(self, now: float) -> float | None:
        """Note one.

        Args:
            now: The time, in seconds.

        Returns:
            How long to wait before the next start, in seconds: 0, then 1, 2, 4, 8; None if it has
            died too often.
        """
        self._times = [each for each in self._times if now - each < _WINDOW_S] + [now]
        count = len(self._times)
        if count > MOST_DEATHS:
            return None
        return 0.0 if count == 1 else 2.0 ** (count - 2)
