"""`gepipe triton infer`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

_EXAMPLES = """
Examples:

    gepipe triton infer http://127.0.0.1:8000 classify photo.jpg

    gepipe triton infer grpc://127.0.0.1:8001 classify photos --output out/mine.jsonl
"""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=_EXAMPLES)(infer)


def infer(  # noqa: PLR0913, PLR0917 - one an option
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="The server, http://host:8000 or grpc://host:8001."),
    ],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The pipeline's name.")],
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILES", help="Files, folders or patterns such as 'a/**/*.jpg'."),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Write the results there, and failures beside it, as a run does, instead of JSON "
            "lines to standard output: --output out/mine.csv",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="With --output: go on where the last one stopped: --resume"),
    ] = False,
    concurrency: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many calls at a time: --concurrency 64")
    ] = 32,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.001, help="Limit of one call: --timeout 5")
    ] = 60.0,
    patience: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            help="How long a call is made again while the server is busy or away: --patience 300",
        ),
    ] = 60.0,
    priority: Annotated[
        Literal["realtime", "bulk"] | None,
        typer.Option(help="Of two classes, for a server that tells them apart: --priority bulk"),
    ] = None,
) -> None:
    """Send files to a served pipeline, and show what it makes of them.

    Exit code 0: every file has a result. 3: some failed. 2: no such model, or no such file.
    5: the server cannot be reached.
    """
    from gepipe.cli.inferring import InferRequest, do_infer

    request = InferRequest(
        url, model, tuple(files), output, resume, concurrency, timeout, patience, priority
    )
    raise typer.Exit(do_infer(request))
