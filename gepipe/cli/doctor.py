"""`gepipe doctor`."""

from __future__ import annotations

import typer

from gepipe.cli.options import Json


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(json: Json = False) -> None:
    """Look at this machine and installation: versions, processors, memory, NPU, plugins.

    Exit code 2 if something is wrong that a run would stumble over.
    """
    from gepipe.cli.diagnosis import show_diagnosis

    raise typer.Exit(show_diagnosis(as_json=json))
