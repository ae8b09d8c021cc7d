"""What `gepipe triton export` does and shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from gepipe.cli.text import harmless, print_error, print_out
from gepipe.serving.export import Exported, Layout, Target, export
from gepipe.spec.load import load


@dataclass(frozen=True)
class ExportRequest:
    """The arguments of `gepipe triton export`, as they were written."""

    file: str
    overrides: tuple[str, ...]
    folder: Path
    layout: Layout | None
    target: Target
    version: int | None


def export_pipeline(request: ExportRequest, *, as_json: bool) -> None:
    """Export a pipeline and say what was made.

    Raises:
        GepipeError: It cannot be exported.
    """
    done = export(
        load(request.file, request.overrides),
        request.folder,
        layout=request.layout,
        target=request.target,
        version=request.version,
    )
    if as_json:
        print_out(json.dumps(_facts(done)))
        return
    for warning in done.warnings:
        print_error(f"warning: {harmless(warning)}")
    for line in _lines(done):
        print_out(harmless(line))


def _facts(done: Exported) -> dict[str, Any]:
    return {
        "name": done.name,
        "folder": str(done.folder),
        "models": done.models,
        "version": done.version,
        "removed": done.removed,
        "notes": done.notes,
        "tensors": done.lines,
        "needs": done.needs,
        "warnings": done.warnings,
        "curl": done.curl,
        "client": str(done.client),
        "start_script": str(done.start_script) if done.start_script else None,
    }


def _lines(done: Exported) -> Iterator[str]:
    yield f"{done.name}: version {done.version} in {done.folder}: {', '.join(done.models)}"
    if done.removed:
        yield f"  removed, of an earlier export: {', '.join(done.removed)}"
    for line in done.notes:
        yield f"  {line}"
    for line in done.lines:
        yield f"  {line}"
    for line in done.needs:
        yield f"  needs {line}"
    yield "next:"
    if done.start_script is not None:
        yield f"  sh {quote(str(done.start_script))}"
    else:
        yield f"  gepipe triton serve {quote(str(done.folder))}"
    yield f"  python {quote(str(done.client))} {done.example}"
    if done.curl:
        yield f"  {done.curl}"
