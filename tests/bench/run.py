"""Measures the figures of the project as ratios within one run, and prints them with goals."""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "engine")]

import harness  # noqa: E402 - after the path
from harness import Figure  # noqa: E402

#: Module to the number of rounds.
BENCHES = {
    "jpeg_job": 5,
    "stage_interval": 3,
    "hand_over": 5,
    "supervisor_cost": 5,
    "memory_growth": 3,
    "cold_start": 5,
    "real_inference": 5,
    "detect_video": 3,
    "video_decode": 5,
    "video_memory": 3,
    "ocr": 3,
    "fan_out": 5,
    "ge_throughput": 3,
    "ge_dispatch": 5,
    "ge_pool": 5,
    "ge_cache": 5,
    "triton_serving": 3,
}


def main() -> int:
    """Run the chosen benchmarks; the status is 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(BENCHES), default=list(BENCHES))
    parser.add_argument("--rounds", type=int, help="instead of each benchmark's own number")
    parser.add_argument("--output", type=Path, help="also write the numbers as JSON")
    parser.add_argument(
        "--patience",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="before each trial, wait up to so long for a quiet moment of the machine",
    )
    options = parser.parse_args()
    harness.patience_s = options.patience
    machine = harness.machine()
    harness.say(", ".join(f"{key} {value}" for key, value in machine.items()))
    figures: list[Figure] = []
    loads, begin = {}, time.monotonic()
    for name in options.only:
        loads[name] = round(harness.others_busy(), 3)
        rounds = options.rounds or BENCHES[name]
        harness.say(f"{name}: {rounds} rounds; others keep {loads[name]:.0%} of the cores busy")
        figures += import_module(name).measure(rounds)
    sys.stdout.write(table(figures) + "\n")
    noisy = [name for name, load in loads.items() if load > harness.QUIET]
    if noisy:
        sys.stdout.write(f"The machine was busy with other things before {', '.join(noisy)}.\n")
    if options.output:
        report = {
            "machine": machine,
            "others_busy": loads,
            "minutes": round((time.monotonic() - begin) / 60, 1),
            "figures": [figure.to_plain() for figure in figures],
        }
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    return int(any(figure.reached is False for figure in figures))


def table(figures: list[Figure]) -> str:
    """Return the figures as text: what, measured, goal, reached."""
    rows = [("what", "measured", "goal", "")]
    for figure in figures:
        goal, verdict = "", ""
        if figure.goal is not None:
            goal = f"{'≥' if figure.at_least else '≤'} {figure.goal:g}"
            verdict = "reached" if figure.reached else "MISSED"
        rows.append((figure.what, f"{figure.measured:.3f}", goal, verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column == 1 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


if __name__ == "__main__":
    sys.exit(main())
