"""`gepipe schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_IN_AN_EDITOR = """
In an editor that knows YAML schemas (VS Code with the YAML extension, JetBrains, Neovim), write the
file once and name it in the first line of a pipeline:

    gepipe schema --output gepipe.schema.json

    # yaml-language-server: $schema=gepipe.schema.json
"""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=_IN_AN_EDITOR)(schema)


def schema(
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write it there, not to standard output: --output gepipe.schema.json",
        ),
    ] = None,
) -> None:
    """Show the JSON schema of a pipeline file, with which editors complete and check it.

    It knows the operators, sources and sinks that are installed here.
    """
    from gepipe.cli.catalogue import write_schema

    write_schema(output)
