"""The first results of a run as a table, read back from the file they were written to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from gepipe.cli.text import cut, harmless
from gepipe.errors import reason_of

_ROWS: Final = 20
_NAME_WIDTH: Final = 48
_VALUE_WIDTH: Final = 60


def table(output: Path, results: int, *, color: bool) -> Iterator[str]:
    """Yield the lines of a table of the first results; nothing where they are not JSON lines.

    Args:
        output: The results.
        results: How many there are.
        color: Whether the lines go to a terminal.
    """
    if output.suffix != ".jsonl" or not results:
        return
    try:
        records = list(_first(output, _ROWS))
    except OSError as error:
        yield harmless(f"{output}: cannot be read back: {reason_of(error)}")
        return
    except (ValueError, KeyError, TypeError, RecursionError):
        yield harmless(f"{output}: holds lines that are no results; something else has written it")
        return
    if len(records) < min(results, _ROWS):
        yield harmless(f"{output}: holds fewer results than were written; something has cut it")
        return
    if all(_classes(record["result"]) is not None for record in records):
        rows = [[_name(record["source"]), *_top(record["result"])] for record in records]
        shares = all(row[2].endswith("%") for row in rows if row[2])
        columns = ["file", "class", "probability" if shares else "score"]
    elif all(_objects(record["result"]) is not None for record in records):
        columns = ["file", "objects"]
        rows = [[_name(each["source"]), _objects(each["result"]) or "none"] for each in records]
    elif all(_text(record["result"]) is not None for record in records):
        columns = ["file", "text"]
        rows = [[_name(each["source"]), _text(each["result"]) or "none"] for each in records]
    else:
        columns = ["file", "result"]
        rows = [[_name(record["source"]), _compact(record["result"])] for record in records]
    yield from (_rich(columns, rows) if color else _plain(columns, rows))
    if results > len(records):
        yield harmless(f"… and {results - len(records):,} more in {output}")


def _first(output: Path, limit: int) -> Iterator[dict[str, Any]]:
    with output.open("rb") as file:
        for line in islice(file, limit):
            record = json.loads(line)
            yield {"source": str(record["source"]), "result": record["result"]}


def _name(source: str) -> str:
    source = source.removeprefix(f"{Path.cwd()}/")
    return cut(harmless(source), _NAME_WIDTH)


def _classes(result: Any) -> list[dict[str, Any]] | None:
    """Return the list of classes in a record of top_k or threshold, whatever else it holds."""
    found = result.get("top_k", result.get("classes")) if isinstance(result, dict) else None
    if isinstance(found, list) and all(
        isinstance(entry, dict) and {"class", "score"} <= set(entry) for entry in found
    ):
        return found
    return None


def _objects(result: Any) -> str | None:
    """Return how many of what a record of yolo lists, the surest first; None for another record."""
    found = result.get("detections") if isinstance(result, dict) else None
    if not isinstance(found, list) or not all(
        isinstance(entry, dict) and {"class", "score", "box"} <= set(entry) for entry in found
    ):
        return None
    said = ", ".join(f"{number} {name}" for name, number in Counter(map(_kind, found)).items())
    return _shortened(harmless(said))


def _kind(found: dict[str, Any]) -> str:
    """Return what an object is, and behind it what a second model says of it."""
    kinds = _classes(found)
    return f"{_called(found)} ({_called(kinds[0])})" if kinds else _called(found)


def _called(entry: dict[str, Any]) -> str:
    """Return a label; where there is none, the number, in a form that is no count."""
    label = entry.get("label")
    return f"#{entry['class']}" if label is None else str(label)


def _text(result: Any) -> str | None:
    """Return the text that was read, on one line; None for another record."""
    text = result.get("text") if isinstance(result, dict) else None
    return _shortened(harmless(" / ".join(text.split("\n")))) if isinstance(text, str) else None


def _top(result: dict[str, Any]) -> tuple[str, str]:
    found = _classes(result)
    if not found:
        return "none", ""
    best = found[0]
    label, score = best.get("label"), best["score"]
    shown = harmless(str(best.get("class") if label is None else label))
    if not isinstance(score, float):
        return shown, str(score)
    return shown, f"{score:6.1%}" if 0 <= score <= 1 else f"{score:.4g}"


def _compact(value: Any) -> str:
    return _shortened(harmless(json.dumps(_rounded(value, 2), ensure_ascii=False)))


def _shortened(text: str) -> str:
    return text if len(text) <= _VALUE_WIDTH else text[: _VALUE_WIDTH - 1] + "…"


def _rounded(value: Any, depth: int) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item, depth - 1) for item in value[:20]]
    return value


def _plain(columns: list[str], rows: list[list[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    for row in [columns, *rows]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _rich(columns: list[str], rows: list[list[str]]) -> Iterator[str]:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE_HEAD, header_style="bold")
    for column in columns:
        right = column in ("probability", "score")
        drawn.add_column(column, justify="right" if right else "left", overflow="ellipsis")
    for row in rows:
        drawn.add_row(*map(Text, row))
    console = Console(highlight=False)
    with console.capture() as capture:
        console.print(drawn)
    yield capture.get().rstrip("\n")
