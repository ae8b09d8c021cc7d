"""What it costs to hand a 4K frame over, compared with 1 KB: nothing more, if nobody copies it."""

from __future__ import annotations

from statistics import median

import harness
from harness import Figure

NAME = "hand_over"
FRAME = 2160 * 3840 * 3
SMALL = 1024
ITEMS = 3000
_SLICES = 10


def trial(variant: str, items: int = ITEMS) -> dict[str, float]:
    """Time both sizes in one process, by turns."""
    from bodies import Bare

    assert variant == "both"
    runtimes = {"frame": Bare(FRAME, batch=1), "small": Bare(SMALL, batch=1)}
    costs: dict[str, list[float]] = {name: [] for name in runtimes}
    for runtime in runtimes.values():
        runtime.run(100)
    for _ in range(_SLICES):
        for name, runtime in runtimes.items():
            statistics, _ = runtime.run(items // _SLICES)
            costs[name].append(1e6 * statistics.elapsed_s / (items // _SLICES))
    for runtime in runtimes.values():
        runtime.close()
    pairs = zip(costs["frame"], costs["small"], strict=True)
    return {
        "frame_us": median(costs["frame"]),
        "small_us": median(costs["small"]),
        "ratio": median(frame / small for frame, small in pairs),
    }


def measure(rounds: int, items: int = ITEMS) -> list[Figure]:
    """Measure the ratio."""
    results = harness.interleave(NAME, ["both"], rounds, items=items)["both"]
    middle = harness.medians(results)
    details = {**middle, "items": items, "lowest_highest": harness.spread(results, "ratio")}
    what = "cost of handing over a 4K frame / a 1 KB item"
    return [Figure(NAME, what, middle["ratio"], 1.1, False, details)]
