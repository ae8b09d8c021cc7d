"""`gepipe triton install`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_EXAMPLES = """
Examples:

    gepipe triton install

    gepipe triton install --python 3.11 --with parquet --requirement requirements.txt
"""


def add_to(group: typer.Typer) -> None:
    """Add the command."""
    group.command(epilog=_EXAMPLES)(install)


def install(
    python: Annotated[
        str | None,
        typer.Option(
            metavar="PYTHON",
            help="A path, or 3.10, 3.11 or 3.12; by default the Python that runs gepipe, else the "
            "newest: --python 3.11",
        ),
    ] = None,
    extras: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="EXTRA",
            help="Install an extra of gepipe there too; may be repeated: --with parquet",
        ),
    ] = None,
    requirement: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Install what this file lists, for your own operators; may be repeated: "
            "--requirement requirements.txt",
        ),
    ] = None,
) -> None:
    """Fetch Triton into an environment of its own, with the NumPy that its models need.

    It goes into the user's cache (GEPIPE_CACHE), about 520 MB a Python version. What is there
    already is kept, so that repeating it costs a second.
    """
    from gepipe.cli.triton_serving import install_triton

    install_triton(python, extras or (), requirement or ())
