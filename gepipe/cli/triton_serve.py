"""`gepipe triton serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_EXAMPLES = """
Examples:

    gepipe triton serve models/

    gepipe triton serve models/ --host 0.0.0.0 --http-port 80

    gepipe triton serve models/ --server /opt/tritonserver --no-reload
"""


def add_to(group: typer.Typer) -> None:
    """Add the command."""
    group.command(epilog=_EXAMPLES)(serve)


def serve(  # noqa: PLR0913, PLR0917 - one an option
    models: Annotated[
        Path, typer.Argument(metavar="MODELS_DIR", help="The model repository, as export writes.")
    ],
    server: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="tritonserver or its folder; by default $TRITON_HOME, /opt/tritonserver, or what "
            "`gepipe triton install` has fetched: --server /opt/tritonserver",
        ),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            metavar="PYTHON",
            help="Python of the models' processes; by default the environment that `gepipe triton "
            "install` makes: --python 3.11",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Listen on this address: --host 0.0.0.0")
    ] = "127.0.0.1",
    http_port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port for HTTP; 0 for any free one.")
    ] = 8000,
    grpc_port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port for gRPC; 0 for any.")
    ] = 8001,
    metrics_port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port for metrics; 0 for any.")
    ] = 8002,
    health_port: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            max=65535,
            help="Port for /healthz and /readyz, which tell the truth where Triton's own do not; "
            "0 for any.",
        ),
    ] = 8003,
    hang_timeout: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="A model that answers none of its waiting requests for this long is loaded "
            "again; `never`: --hang-timeout 5min",
        ),
    ] = "60s",
    stop_timeout: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="How long running requests may take to end: --stop-timeout 10s"
        ),
    ] = "30s",
    reload: Annotated[
        bool, typer.Option(help="Take in models that are added, changed or removed.")
    ] = True,
    lint: Annotated[
        bool, typer.Option(help="Look for faults first, which the server would hang on or hide.")
    ] = True,
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Add the server's own log to this file; by default one in the user's cache: "
            "--log triton.log",
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the server's log too.")] = False,
) -> None:
    """Serve a model repository with Triton, on this machine only unless --host says otherwise.

    Models whose process has died or hangs are loaded again; models whose files change are
    replaced without a gap. Ctrl-C or SIGTERM stop it when the running requests have ended.
    """
    from gepipe.cli.triton_serving import serve_models

    ports = {"http": http_port, "grpc": grpc_port, "metrics": metrics_port, "health": health_port}
    serve_models(
        models, server, python, host, ports, log, hang_timeout, stop_timeout,
        verbose=verbose, lint=lint, reload=reload,
    )  # fmt: skip
