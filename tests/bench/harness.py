"""How the benchmarks measure: trials in processes of their own, interleaved rounds, medians."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENGINE = HERE / "engine"
TRIAL_LIMIT_S = 300.0
QUIET = 0.1  # share of the processors that may be busy with other things

#: How long a trial waits for a quiet moment of the machine.
patience_s = 0.0

Values = Mapping[str, float]


@dataclass(frozen=True)
class Figure:
    """One number with its goal.

    Attributes:
        bench: Module that measured it.
        what: The number, in words.
        measured: Median over the rounds.
        goal: What it should reach; None for a number that is only told.
        at_least: Whether more is better.
        details: The numbers behind it.
    """

    bench: str
    what: str
    measured: float
    goal: float | None = None
    at_least: bool = True
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reached(self) -> bool | None:
        if self.goal is None:
            return None
        return self.measured >= self.goal if self.at_least else self.measured <= self.goal

    def to_plain(self) -> dict[str, Any]:
        return {**asdict(self), "reached": self.reached}


def environment() -> dict[str, str]:
    """Return the variables of a process that finds the latency table and the bench modules."""
    paths = [str(HERE), str(ENGINE), os.environ.get("PYTHONPATH", "")]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # or each process would compile anew
    return variables


def trial(module: str, variant: str, **params: Any) -> dict[str, float]:
    """Run `module.trial(variant, **params)` in a new process and return its numbers."""
    command = [sys.executable, str(HERE / "harness.py"), module, variant, json.dumps(params)]
    done = subprocess.run(
        command,
        env=environment(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=TRIAL_LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{module} {variant}: exited with status {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def interleave(
    module: str, variants: Sequence[str], rounds: int, **params: Any
) -> dict[str, list[dict[str, float]]]:
    """Run each variant once a round, so that a busy moment of the machine hits all alike.

    Every round begins with another variant. Returns the numbers by variant, round by round.
    """
    results: dict[str, list[dict[str, float]]] = {variant: [] for variant in variants}
    for number in range(rounds):
        start = number % len(variants)
        for variant in (*variants[start:], *variants[:start]):
            _wait_for_quiet()
            numbers = trial(module, variant, **params)
            results[variant].append(numbers)
            shown = ", ".join(f"{key} {value:.4g}" for key, value in numbers.items())
            say(f"  {number + 1}/{rounds} {variant}: {shown}")
    return results


def medians(results: Sequence[Values]) -> dict[str, float]:
    """Return the median of each number."""
    return {key: median(each[key] for each in results) for key in results[0]}


def ratio(ours: Sequence[Values], theirs: Sequence[Values], key: str = "rate") -> float:
    """Return the median over the rounds of ours / theirs, each within one round."""
    return median(a[key] / b[key] for a, b in zip(ours, theirs, strict=True))


def spread(results: Sequence[Values], key: str = "rate") -> list[float]:
    """Return lowest and highest."""
    values = [each[key] for each in results]
    return [min(values), max(values)]


def machine() -> dict[str, Any]:
    """Name the machine, what it runs and how busy it is with other things."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith(("model name", "CPU part"))
    ]
    memory = Path("/proc/meminfo").read_text().split()[1]
    return {
        "cpu": names[0] if names else platform.machine(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory) / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        **{
            name: version(name)
            for name in ("numpy", "opencv-python-headless", "onnxruntime", "multiprocess")
        },
        "load_before": round(others_busy(), 3),
    }


def others_busy(seconds: float = 1.0) -> float:
    """Return the share of the processors that is busy while we do nothing, 0 to 1."""
    before = _jiffies()
    time.sleep(seconds)  # noqa: TID251 - doing nothing is the point
    busy, total = (after - then for after, then in zip(_jiffies(), before, strict=True))
    return busy / total


def _wait_for_quiet() -> None:
    end = time.monotonic() + patience_s
    while time.monotonic() < end and others_busy(0.25) > QUIET:
        pass


def _jiffies() -> tuple[int, int]:
    fields = [int(each) for each in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    total = sum(fields)
    return total - fields[3] - fields[4], total  # idle and iowait


def say(text: str) -> None:
    """Write a line of progress."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _main() -> None:
    from importlib import import_module

    module, variant, params = sys.argv[1:]
    numbers = import_module(module).trial(variant, **json.loads(params))
    sys.stdout.write("\n" + json.dumps(numbers) + "\n")


if __name__ == "__main__":
    _main()
