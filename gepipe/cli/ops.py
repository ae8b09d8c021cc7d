"""`gepipe ops`."""

from __future__ import annotations

from typing import Annotated

import typer

from gepipe.cli.options import Json


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(ops)


def ops(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Show this one with its parameters.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show sources, sinks and engines too: gepipe ops --all")
    ] = False,
    json: Json = False,
) -> None:
    """List the operators that are installed, or show one with its parameters.

    Examples: gepipe ops · gepipe ops resize · gepipe ops jsonl
    """
    from gepipe.cli.catalogue import show_parts

    show_parts(name, everything=everything, as_json=json)
