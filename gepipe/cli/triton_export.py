"""`gepipe triton export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from gepipe.cli.options import Json, Overrides

_EXAMPLES = """
Examples:

    gepipe triton export pipelines/classify.yaml models

    gepipe triton export classify.yaml models --layout fused --set profile=latency

    gepipe triton export classify.yaml models --version 2

    gepipe triton export ocr.yaml models
"""


def add_to(group: typer.Typer) -> None:
    """Add the command."""
    group.command(epilog=_EXAMPLES)(export)


def export(  # noqa: PLR0913, PLR0917 - one an option
    file: Annotated[str, typer.Argument(metavar="PIPELINE.yaml", help="The pipeline file.")],
    folder: Annotated[
        Path, typer.Argument(metavar="MODELS_DIR", help="The model repository; made if missing.")
    ],
    layout: Annotated[
        Literal["ensemble", "fused"] | None,
        typer.Option(
            help="ensemble: a model for each stage, and one that joins them; the default. fused: "
            "one model that runs gepipe's own processes; the default for a pipeline of several "
            "models: --layout fused"
        ),
    ] = None,
    target: Annotated[
        Literal["ge", "npu_ge"],
        typer.Option(help="gepipe's backend, or CANN's own for ONNX on a card: --target npu_ge"),
    ] = "ge",
    version: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="The version to write; by default the highest one there, which is replaced, or 1. "
            "Other versions stay: --version 2",
        ),
    ] = None,
    overrides: Overrides = None,
    json: Json = False,
) -> None:
    """Make a Triton model repository of a pipeline.

    Opens each model in a process of its own to learn its tensors. Models that an earlier export of
    the same pipeline has left are replaced, whole or not at all; others are never touched. Exit
    code 6 if the pipeline cannot be served, or nothing can be written there.
    """
    from gepipe.cli.exporting import ExportRequest, export_pipeline

    export_pipeline(
        ExportRequest(file, tuple(overrides or ()), folder, layout, target, version), as_json=json
    )
