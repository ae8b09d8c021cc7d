"""How many items may fail before a run is stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gepipe.errors import ConfigError, StageError

if TYPE_CHECKING:
    from gepipe.spec.model import PipelineSpec


def failures_left(
    spec: PipelineSpec, total: int | None, failed: int = 0, *, or_else: str = ""
) -> int | None:
    """Return how many more items may fail; None for any number.

    Args:
        spec: The pipeline.
        total: Items of the job, or None if that is not known.
        failed: Items that have failed before.
        or_else: What would make the number known, for the message.

    Raises:
        StageError: Too many have failed already.
        ConfigError: The limit is a share of a number that is not known.
    """
    if spec.on_error == "fail":
        return 0
    limit = spec.max_failures
    if limit is None:
        return None
    if total is None and limit.percent is not None:
        raise ConfigError(
            f"{spec.name}: max_failures is {limit} of the items, whose number is not known before "
            f"the end; set it to a number of items{or_else}"
        )
    left = limit.allowed(total or 0) - failed
    if left < 0:
        raise StageError(
            f"{failed} items have failed already, and max_failures is {limit}; raise it to go on "
            "(--set max_failures=…), or run without --resume to start anew"
        )
    return left
