"""Memory of the supervisor and its workers after 1,000 and after 20,000 photos."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

import harness
import media
from harness import Figure

NAME = "memory_growth"
ITEMS = 20_000
_FIRST = 1000
_STEP = 1000
_NOISE_KIB = 1024  # of all processes together
_PIPELINE = """
stages:
  - name: preprocess
    batch_size: 32
    ops:
      - decode_image: {}
      - resize: {size: [224, 224]}
      - normalize: {mean: 127, std: 128}
      - to_tensor: nchw
  - name: inference
    backend: {latency_table: {table: {32: 1ms}}}
  - name: postprocess
    ops: [top_k: 5]
"""


def trial(variant: str, items: int = ITEMS) -> dict[str, float]:
    """Run small photos through all stages and look at the memory on the way."""
    from gepipe.pipeline.pipeline import Pipeline
    from gepipe.spec.load import loads

    assert variant == "pipeline"
    paths = media.jpegs(256, 320, 240)
    at: dict[int, dict[str, int]] = {}
    with Pipeline(loads(_PIPELINE)) as pipeline:
        # A generator, so that the inputs themselves are not held.
        for result in pipeline.run(islice(cycle(paths), items)):
            if (result.index + 1) % _STEP == 0:
                at[result.index + 1] = memory_kib()
    first, last = at[_FIRST], at[items]
    later = at[items // 2]
    return {
        "rss_kib_first": first["Rss"],
        "rss_kib_last": last["Rss"],
        "pss_kib_first": first["Pss"],
        "pss_kib_last": last["Pss"],
        "growth_kib": last["Pss"] - first["Pss"],
        "second_half_bytes_per_item": 1024 * (last["Pss"] - later["Pss"]) / (items - items // 2),
    }


def memory_kib() -> dict[str, int]:
    """Return RSS and PSS in KiB, summed over this process and all below it."""
    sums = {"Rss": 0, "Pss": 0}
    for pid in _family(os.getpid()):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # it has just ended
            continue
        for line in lines:
            key, _, value = line.partition(":")
            if key in sums:
                sums[key] += int(value.split()[0])
    return sums


def _family(root: int) -> Iterator[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:  # it has just ended
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    yield from found


def measure(rounds: int, items: int = ITEMS) -> list[Figure]:
    """Measure the growth."""
    media.jpegs(256, 320, 240)
    results = harness.interleave(NAME, ["pipeline"], rounds, items=items)["pipeline"]
    middle = harness.medians(results)
    details = {**middle, "items": items, "lowest_highest": harness.spread(results, "growth_kib")}
    what = f"memory growth from {_FIRST:,} to {items:,} items, MiB (noise: {_NOISE_KIB / 1024:g})"
    growth = middle["growth_kib"] / 1024
    return [Figure(NAME, what, growth, _NOISE_KIB / 1024, False, details)]
