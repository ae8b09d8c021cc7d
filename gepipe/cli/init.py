"""`gepipe init`."""

from __future__ import annotations

from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(init)


def init(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Which one; without it, the names are listed."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file of that name: init classify --force")
    ] = False,
) -> None:
    """Write a ready pipeline into the current folder, to run it or to change it.

    Example: gepipe init classify
    """
    from gepipe.cli.ready import list_pipelines, write_pipeline

    if name is None:
        list_pipelines()
    else:
        write_pipeline(name, force=force)
