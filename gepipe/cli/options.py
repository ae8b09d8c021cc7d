"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

File = Annotated[str, typer.Argument(metavar="FILE", help="The pipeline file (YAML).")]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="PATH",
        help="Read this file, folder or pattern instead of the file's source; may be repeated: "
        "--input photos --input 'more/*.jpg'",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="STAGE.KEY=VALUE",
        help="Change a key for this time; may be repeated: --set preprocess.batch_size=16",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Write one JSON object to standard output: --json | jq .")
]
