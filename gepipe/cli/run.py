"""`gepipe run`."""

from __future__ import annotations

from typing import Annotated

import typer

from gepipe.cli.options import File, Inputs, Overrides

_EXAMPLES = """
Examples:

    gepipe run pipelines/classify.yaml

    gepipe run classify.yaml --input "photos/**/*.jpg" --output out/mine.jsonl --limit 100

    gepipe run classify.yaml --via http://127.0.0.1:8000
"""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=_EXAMPLES)(run)


def run(  # noqa: PLR0913, PLR0917 - one an option
    file: File,
    inputs: Inputs = None,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Write the results here instead of into the file's sink; a folder ends with /: "
            "--output out/mine.csv, --output results/",
        ),
    ] = None,
    overrides: Overrides = None,
    via: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Have a Triton server do it that serves this pipeline, `http://host:8000` or "
            "`grpc://host:8001`; inputs and outputs stay here: --via http://127.0.0.1:8000",
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option(metavar="N", min=1, help="With --via: how many calls at a time.")
    ] = 32,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Do the first N inputs only, of videos the first N frames: --limit 100",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on where the last run into the same output stopped: "
            "run classify.yaml --resume",
        ),
    ] = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Write the summary as one JSON object to standard output, in place of the table: "
            "--json > summary.json",
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            help="Say nothing but errors, as in a cron job: run classify.yaml --quiet",
        ),
    ] = False,
) -> None:
    """Run a pipeline over its inputs and write the results.

    Exit code 0: every input has a result. 3: some failed; the failures file says why.
    2: the request is wrong. 4: a worker did not start. 5: model or device. 130: stopped.
    """
    from gepipe.cli.running import RunRequest, run_job

    request = RunRequest(
        file,
        tuple(inputs or ()),
        output,
        tuple(overrides or ()),
        limit,
        resume,
        json,
        quiet,
        via,
        concurrency,
    )
    raise typer.Exit(run_job(request))
