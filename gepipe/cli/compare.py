"""`gepipe compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gepipe.cli.options import File, Inputs, Json, Overrides

_EXAMPLES = """
Examples:

    gepipe compare classify.yaml --limit 200 --tolerance 0.02

    gepipe compare classify.yaml --model-a model.onnx --model-b model.om

    gepipe compare classify.yaml --batch-a 8 --batch-b 1
"""


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=_EXAMPLES)(compare)


def compare(  # noqa: PLR0913, PLR0917 - one an option
    file: File,
    inputs: Inputs = None,
    overrides: Overrides = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="Compare the first N inputs: --limit 200")
    ] = 64,
    model_a: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="First model, the file's by default: --model-a m.onnx"),
    ] = None,
    model_b: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Second model, the file's by default: --model-b m.om"),
    ] = None,
    backend_a: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="First engine; by default onnxruntime for ONNX."),
    ] = None,
    backend_b: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Second engine; by default ge, by --model-b, or the first where batches differ.",
        ),
    ] = None,
    batch_a: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="First batch size, the file's by default."),
    ] = None,
    batch_b: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Second batch size, the file's by default; 1 tells whether results depend on "
            "what shares a batch: --batch-b 1",
        ),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0,
            help="Largest difference as a share of an output's largest value: --tolerance 0.02",
        ),
    ] = 0.01,
    agreement: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0,
            max=1,
            help="Smallest share of items with the same final result (of top_k, the first class): "
            "--agreement 1",
        ),
    ] = 0.98,
    json: Json = False,
) -> None:
    """Run the same inputs through ONNX Runtime and the NPU, or in two batch sizes, and compare.

    Exit code 0: outputs and results are within the thresholds. 3: they are not.
    """
    from gepipe.cli.comparing import show_comparison
    from gepipe.pipeline.comparison import CompareRequest

    request = CompareRequest(
        file, tuple(overrides or ()), tuple(inputs or ()), limit, model_a, model_b, backend_a,
        backend_b, batch_a, batch_b, tolerance, agreement,
    )  # fmt: skip
    raise typer.Exit(show_comparison(request, as_json=json))
