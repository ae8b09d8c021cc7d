"""What `gepipe triton lint` shows."""

from __future__ import annotations

import json
from pathlib import Path

from gepipe.cli.text import count, harmless, print_error, print_out
from gepipe.errors import ConfigError, GepipeError
from gepipe.models.inspection import inspect
from gepipe.models.kind import kind_of
from gepipe.triton.lint import Report, lint
from gepipe.triton.mending import mend
from gepipe.triton.problem import ModelFile, Problem


def show_lint(models: str, backends: str | None, *, fix: bool, as_json: bool) -> int:
    """Look at a repository, show what was found, and return the exit code.

    Raises:
        ConfigError: There is no such repository, or no such folder of backends.
        GepipeError: A repair cannot be written.
    """
    if backends is not None and not Path(backends).is_dir():
        raise ConfigError(f"--backends: there is no folder {backends!r}")
    report = lint(Path(models), backends=Path(backends) if backends else None, describe=describe)
    if fix:
        mend(report)
    left = report.remaining if fix else report.problems
    errors = [problem for problem in left if problem.level == "error"]
    warnings = [problem for problem in left if problem.level == "warning"]
    code = ConfigError.exit_code if errors else 0
    if as_json:
        fixed = [problem.to_plain() for problem in report.repairable] if fix else []
        print_out(
            json.dumps(
                {
                    "ok": not errors,
                    "errors": [p.to_plain() for p in errors],
                    "warnings": [p.to_plain() for p in warnings],
                    "fixed": fixed,
                }
            )
        )
        return code
    if fix:
        for problem in report.repairable:
            print_out(f"fixed: {harmless(f'{problem}; now {problem.repair}')}")
    for problem in (*warnings, *errors):
        print_error(f"{problem.level}: {harmless(str(problem))}")
    print_out(f"{harmless(models)}: {_verdict(report, errors, warnings, fix=fix)}")
    return code


def _verdict(report: Report, errors: list[Problem], warnings: list[Problem], *, fix: bool) -> str:
    words = [count(len(errors), "error")] if errors else []
    words += [count(len(warnings), "warning")] if warnings else []
    verdict = (
        ", ".join(words) if errors else "good to serve" + (f", with {words[0]}" if words else "")
    )
    if fix and report.repairable:
        return f"{verdict}; {len(report.repairable):,} fixed"
    if report.repairable:
        return f"{verdict}; --fix mends {len(report.repairable):,} of them"
    return verdict


def describe(path: Path) -> ModelFile | None:
    """Return what a model file says of itself; None where it cannot be read."""
    try:
        kind, words = kind_of(path)
    except GepipeError:
        return None
    try:
        found = inspect(path)
    except GepipeError:  # what it is is known all the same
        return ModelFile(kind, words)
    sides = (found.inputs, found.outputs)
    inputs, outputs = (
        None if side is None else tuple((t.name, t.dtype, t.shape) for t in side) for side in sides
    )
    return ModelFile(kind, words, inputs, outputs)
