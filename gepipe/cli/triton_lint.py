"""`gepipe triton lint`."""

from __future__ import annotations

from typing import Annotated

import typer

from gepipe.cli.options import Json


def add_to(group: typer.Typer) -> None:
    """Add the command."""
    group.command()(lint)


def lint(
    models: Annotated[
        str, typer.Argument(metavar="MODELS", help="Model repository: a folder of models.")
    ],
    fix: Annotated[
        bool, typer.Option("--fix", help="Change the files where only one change is possible.")
    ] = False,
    backends: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="The server's folder of backends, to look there too."),
    ] = None,
    json: Json = False,
) -> None:
    """Find what Triton would refuse, hang on or misread in a model repository.

    Reads every configuration, the folders of versions, `model.py` and model files; no server is
    started. `--fix` rewrites what has one right form, such as the words of other GE backends, and
    leaves comments and layout as they are. Exit code 2 if a model would not load, would hang, or
    would fail every request; warnings do not count.
    """
    from gepipe.cli.triton_linting import show_lint

    raise typer.Exit(show_lint(models, backends, fix=fix, as_json=json))
