"""`gepipe model`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from gepipe.cli.options import Json

_EXAMPLES = """
Examples:

    gepipe model convert model.onnx --soc Ascend310P3 --gears 1,4,8

    gepipe model convert model.onnx --soc emulator --output model.om

    gepipe model convert model.onnx --aipp-from pipeline.yaml --show
"""


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        no_args_is_help=True, help="Convert models for NPUs, look into them, and keep them."
    )
    group.command(epilog=_EXAMPLES)(convert)
    group.command("inspect")(inspect_)
    cache = typer.Typer(
        no_args_is_help=True, help="Converted models that are kept, to be found again."
    )
    cache.command("list")(cache_list)
    cache.command("clear")(cache_clear)
    group.add_typer(cache, name="cache")
    app.add_typer(group, name="model")


def convert(  # noqa: PLR0913, PLR0917 - one an option
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The ONNX model.")],
    soc: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The chip, such as Ascend310P3; `emulator`; `auto` asks this machine's card.",
        ),
    ] = "auto",
    gears: Annotated[
        str | None,
        typer.Option(metavar="N,…", help="Batch sizes; a single one is fixed: --gears 1,4,8"),
    ] = None,
    image_sizes: Annotated[
        str | None,
        typer.Option(
            metavar="HxW,…", help="Image sizes, height first: --image-sizes 416x416,608x608"
        ),
    ] = None,
    dims: Annotated[
        str | None,
        typer.Option(
            metavar="N,…;…",
            help="Groups of numbers for all open extents in order: --dims '1,128;8,128'",
        ),
    ] = None,
    input_shape: Annotated[
        str | None,
        typer.Option(
            metavar="NAME:N,…",
            help="Shapes of inputs, -1 for what gears decide, 1~16 for a range: "
            "--input-shape 'x:-1,3,224,224'",
        ),
    ] = None,
    precision: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="auto (atc's own, fp16), fp16, fp32 (all of it, or fail), prefer_fp32, mixed, or "
            "a precision_mode of atc: --precision fp16",
        ),
    ] = "auto",
    aipp_from: Annotated[
        Path | None,
        typer.Option(
            metavar="PIPELINE.yaml",
            help="Let the card do this pipeline's normalize and to_tensor, so that it takes 8-bit "
            "pixels: --aipp-from classify.yaml",
        ),
    ] = None,
    aipp_order: Annotated[
        Literal["rgb", "bgr"] | None,
        typer.Option(
            help="Order of the channels that the pipeline will send, if not its own; the card "
            "swaps them: --aipp-order bgr",
        ),
    ] = None,
    output_type: Annotated[
        str,
        typer.Option(metavar="TYPE", help="Type of the outputs: --output-type FP16"),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="X.om", help="Where to; beside the model by default: --output out/x.om"
        ),
    ] = None,
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="End atc after this time: --timeout 2h")
    ] = "1h",
    extra: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ARG",
            help="A further argument for atc; may be repeated: --extra=--external_weight=1",
        ),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Print the whole command of atc, and do nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Convert an ONNX model to .om for Ascend NPUs, with atc of CANN, or for the emulator.

    What was converted is kept by contents, options and CANN version, and found again.
    """
    from gepipe.cli.modelling import ConvertRequest, convert_model

    request = ConvertRequest(
        model, soc, gears, image_sizes, dims, input_shape, precision, aipp_from, aipp_order,
        output_type, output, timeout, tuple(extra or ()), show, json,
    )  # fmt: skip
    raise typer.Exit(convert_model(request))


def inspect_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A model, .onnx or .om.")],
    json: Json = False,
) -> None:
    """Show what a model takes and makes, its gears, and what else its file says.

    Example: gepipe model inspect model.onnx
    """
    from gepipe.cli.modelling import show_model

    raise typer.Exit(show_model(file, as_json=json))


def cache_list(json: Json = False) -> None:
    """List the converted models that are kept, those used last first."""
    from gepipe.cli.modelling import list_cache

    raise typer.Exit(list_cache(as_json=json))


def cache_clear() -> None:
    """Remove the converted models that are kept, but for those that a process is running."""
    from gepipe.cli.modelling import clear_cache

    raise typer.Exit(clear_cache())
