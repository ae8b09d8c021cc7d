"""What `gepipe check` shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gepipe.cli.text import count, harmless, print_error, print_out
from gepipe.errors import ConfigError
from gepipe.pipeline.check import check

if TYPE_CHECKING:
    from gepipe.runtime.body import ModelInfo


def show_check(file: str, overrides: Sequence[str], inputs: Sequence[str], *, as_json: bool) -> int:
    """Check a pipeline, show what was found, and return the exit code."""
    found = check(file, overrides, inputs)
    code = ConfigError.exit_code if found.errors else 0
    if as_json:
        print_out(
            json.dumps(
                {
                    "ok": not found.errors,
                    "errors": found.errors,
                    "warnings": found.warnings,
                    "notes": found.notes,
                    "input_count": found.input_count,
                    "model": _tensors(found.model) if found.model else None,
                    "models": {name: _tensors(info) for name, info in found.models.items()},
                }
            )
        )
        return code
    for note in found.notes:
        print_out(harmless(note))
    for warning in found.warnings:
        print_error(f"warning: {harmless(warning)}")
    for error in found.errors:
        print_error(f"error: {harmless(error)}")
    print_out(f"{harmless(file)}: {_verdict(len(found.errors), len(found.warnings))}")
    return code


def _tensors(model: ModelInfo) -> dict[str, list[dict[str, Any]]]:
    return {
        side: [{"name": row.name, "dtype": row.dtype, "shape": row.shape} for row in rows]
        for side, rows in (("inputs", model.inputs), ("outputs", model.outputs))
    }


def _verdict(errors: int, warnings: int) -> str:
    if errors:
        return count(errors, "error") + (f", {count(warnings, 'warning')}" if warnings else "")
    return "good to run" + (f", with {count(warnings, 'warning')}" if warnings else "")
