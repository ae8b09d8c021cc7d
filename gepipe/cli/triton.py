"""`gepipe triton`."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

import typer

#: Commands in the order of the help. Each is a module `triton_…` here that adds itself; only the
#: one that is asked for is imported.
COMMANDS: Final[tuple[str, ...]] = ("install", "export", "lint", "serve", "infer")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        no_args_is_help=True, help="Serve pipelines with NVIDIA Triton, and call them there."
    )
    asked = sys.argv[2:3]
    for name in asked if asked and asked[0] in COMMANDS else COMMANDS:
        import_module(f"gepipe.cli.triton_{name}").add_to(group)
    app.add_typer(group, name="triton")
