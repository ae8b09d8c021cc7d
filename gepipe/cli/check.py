"""`gepipe check`."""

from __future__ import annotations

import typer

from gepipe.cli.options import File, Inputs, Json, Overrides


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(check)


def check(
    file: File, inputs: Inputs = None, overrides: Overrides = None, json: Json = False
) -> None:
    """Find everything that is wrong with a pipeline before it is run.

    Reads the YAML, counts the inputs, sets the operators up, opens the model in a process of its
    own and compares its tensors with the stages around it. Exit code 2 if anything would stop a
    run or make every item fail; warnings do not count.
    """
    from gepipe.cli.checking import show_check

    raise typer.Exit(show_check(file, overrides or [], inputs or [], as_json=json))
