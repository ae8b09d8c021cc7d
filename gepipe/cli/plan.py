"""`gepipe plan`."""

from __future__ import annotations

import typer

from gepipe.cli.options import File, Json, Overrides


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(plan)


def plan(file: File, overrides: Overrides = None, json: Json = False) -> None:
    """Show what a run would use: engine, devices, workers, threads, batch, slots and memory.

    Opens the model in a process of its own, because the batch size may depend on it; nothing is
    read and nothing is written. Example: gepipe plan classify.yaml --set preprocess.threads=4
    """
    from gepipe.cli.planning import show_plan

    show_plan(file, overrides or [], as_json=json)
