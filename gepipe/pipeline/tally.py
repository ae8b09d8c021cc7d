"""How many parts of items were good, and how many failed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gepipe.pipeline.fan import is_broken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gepipe.pipeline.fan import Gathered, Result


@dataclass(slots=True)
class PartTally:
    """Parts of the items that were counted.

    Attributes:
        good: Parts with a result of their own; not those that were split again.
        failed: Parts that failed; not where they are their items' only ones.
        marred: Items with a part that failed.
        first_failed: The first part that failed, and why; empty if none did.
    """

    good: int = 0
    failed: int = 0
    marred: int = 0
    first_failed: str = ""

    @classmethod
    def of(cls, source: str, item: Result | Gathered) -> PartTally:
        """Count the parts of an item; one that has failed itself has none.

        Args:
            source: The item's display text.
            item: It, with its parts.
        """
        tally = cls()
        for number, failure in _leaves(item, ""):
            if failure is None:
                tally.good += 1
                continue
            tally.failed += 1
            if not tally.first_failed:
                stage, kind, error = failure
                tally.first_failed = f"{source}, part {number}: {stage}, {kind}: {error}"
        tally.marred = int(tally.failed > 0)
        return tally

    def add(self, other: PartTally) -> None:
        """Count what another one has counted behind this one."""
        self.good += other.good
        self.failed += other.failed
        self.marred += other.marred
        self.first_failed = self.first_failed or other.first_failed


def _leaves(item: Any, within: str) -> Iterator[tuple[str, tuple[str, str, str] | None]]:
    """Yield the parts of an item that were not split again: number, as in `2.0`, and failure."""
    if type(item) is not tuple or is_broken(item):
        return
    for number, (_, result) in enumerate(item[1]):
        if type(result) is bytes:
            yield f"{within}{number}", None
        elif is_broken(result):
            yield f"{within}{number}", result
        else:
            yield from _leaves(result, f"{within}{number}.")
