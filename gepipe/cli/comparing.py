"""What `gepipe compare` shows."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from gepipe.cli.text import count, cut, harmless, print_out
from gepipe.errors import StageError
from gepipe.pipeline.compare import compare
from gepipe.pipeline.comparison import CompareRequest, Comparison

_COLUMNS = ("output", "max abs", "share", "max rel", "cosine", "NaN a", "NaN b")
_WIDTH = 60


def show_comparison(request: CompareRequest, *, as_json: bool) -> int:
    """Compare, show what was found, and return the exit code."""
    found = compare(request)
    problems = found.problems()
    if as_json:
        print_out(json.dumps(_finite(_plain(found, problems)), allow_nan=False))
    else:
        for line in _lines(found, problems):
            print_out(harmless(line))
    return StageError.exit_code if problems else 0


def _finite(value: Any) -> Any:
    """Return plain values, null for what JSON has no number for."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _plain(found: Comparison, problems: list[str]) -> dict[str, Any]:
    return {
        "ok": not problems, "problems": problems, "sides": list(found.sides),
        "notes": list(found.notes), "items": found.items, "agreeing": found.agreeing,
        "tolerance": found.request.tolerance, "agreement": found.request.agreement,
        "failed": {side: {"count": n, "first": why} for side, (n, why) in found.failed.items()},
        "outputs": [{**asdict(output), "scaled": output.scaled} for output in found.outputs],
        "disagreements": [asdict(each) for each in found.disagreements],
    }  # fmt: skip


def _lines(found: Comparison, problems: list[str]) -> Iterator[str]:
    for name, side in zip("ab", found.sides, strict=True):
        yield f"{name}: {side}"
        own = (note for note in found.notes if note.startswith(f"{name}: "))
        yield from (f"  {note.removeprefix(f'{name}: ')}" for note in own)
    for side, (number, why) in found.failed.items():
        yield f"{side}: {count(number, 'item')} failed; the first: {why}"
    rows = [
        (
            output.name, f"{output.max_abs:.3g}", f"{output.scaled:.2g}", f"{output.max_rel:.3g}",
            f"{output.cosine:.6f}", str(output.nan_a), str(output.nan_b),
        )
        for output in found.outputs
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    for row in (_COLUMNS, *rows):
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield "  ".join(cells)
    yield f"results agree for {found.agreeing:,} of {count(found.items, 'item')}"
    for each in found.disagreements:
        yield f"  {each.source}: a {_short(each.first)}, b {_short(each.second)}"
    yield from (f"beyond: {problem}" for problem in problems)
    if not problems:
        yield "within the thresholds"


def _short(result: Any) -> str:
    if isinstance(result, dict) and isinstance(result.get("top_k"), list) and result["top_k"]:
        best = result["top_k"][0]
        return f"{best.get('label', best['class'])} ({best['score']:.3f})"
    if isinstance(result, list):  # the outputs themselves
        result = [each.tolist() if hasattr(each, "tolist") else each for each in result]
    return cut(str(result), _WIDTH)
