"""Source and sink of a job: the YAML's, or those that `--input` and `--output` ask for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic_core import PydanticCustomError

from gepipe.errors import ConfigError
from gepipe.io.csvrows import CsvRows
from gepipe.io.files import ImageFiles
from gepipe.io.lines import JsonlRows, TextLines
from gepipe.io.parquetrows import ParquetRows
from gepipe.io.videos import VIDEO_EXTENSIONS, VideoFiles, is_video
from gepipe.io.walk import IMAGE_EXTENSIONS, holds, is_image
from gepipe.ops.text import Tokenize
from gepipe.spec.parts import shorthand_of, sink_of

if TYPE_CHECKING:
    from gepipe.io.sink import Sink
    from gepipe.io.source import Source
    from gepipe.spec.model import PipelineSpec


def chosen_source(spec: PipelineSpec, inputs: Sequence[str] = ()) -> Source:
    """Return the YAML's source, or the one that `--input` asks for.

    Raises:
        ConfigError: There is none, or it takes no such paths.
    """
    if not inputs:
        if spec.source is None:
            raise ConfigError(f"{spec.name}: there is no source; set `source:` or give --input")
        return cast("Source", spec.source)
    # Not validated as YAML: a path may be any bytes.
    return cast("Source", _with_path(_source_for(spec, inputs), "--input", list(inputs)))


def _source_for(spec: PipelineSpec, inputs: Sequence[str]) -> Any:
    """Return the YAML's source, or one of the kind of the inputs where they are of another kind.

    Pictures and videos take each other's place: a pipeline for the ones works on the others. In
    the place of plain text stands a table, whose lines would else be taken for sentences.
    """
    if spec.source is None:
        if spec.pre.ops and isinstance(spec.pre.ops[0], Tokenize):
            return _table(inputs) or TextLines(".")
        return VideoFiles(".") if all(map(_is_of_videos, inputs)) else ImageFiles(".")
    if isinstance(spec.source, ImageFiles) and all(map(_is_of_videos, inputs)):
        return VideoFiles(".")
    if isinstance(spec.source, VideoFiles) and all(map(_is_of_images, inputs)):
        return ImageFiles(".")
    if type(spec.source) is TextLines:
        return _table(inputs) or spec.source
    return spec.source


def _table(inputs: Sequence[str]) -> CsvRows | JsonlRows | ParquetRows | None:
    """Return the source for files that are tables of texts by their ending; None for others."""
    for table in (CsvRows, JsonlRows, ParquetRows):
        endings = tuple(map(os.fsdecode, table.endings))
        if all(path.lower().endswith(endings) for path in inputs):
            return table(".")
    return None


def _is_of_videos(path: str) -> bool:
    """Whether a path is a video, or a folder of videos without an image."""
    if is_video(path):
        return True
    return not holds(path, IMAGE_EXTENSIONS) and holds(path, VIDEO_EXTENSIONS)


def _is_of_images(path: str) -> bool:
    """Whether a path is an image, or a folder of images without a video."""
    if is_image(path):
        return True
    return not holds(path, VIDEO_EXTENSIONS) and holds(path, IMAGE_EXTENSIONS)


def paths_of(inputs: object) -> tuple[str, ...]:
    """Return the paths of a job's inputs as text.

    Raises:
        ConfigError: They are no list of paths.
    """
    if isinstance(inputs, str | bytes | os.PathLike) or not isinstance(inputs, Iterable):
        raise ConfigError(f"inputs: expected a list of paths, got {inputs!r}")
    paths = []
    for number, path in enumerate(inputs):
        if not isinstance(path, str | os.PathLike):
            raise ConfigError(
                f"inputs[{number}]: expected a path, got {type(path).__name__}; a job reads files, "
                "Pipeline.run takes bytes and arrays"
            )
        paths.append(os.fsdecode(path))
    return tuple(paths)


def path_of(output: object) -> str | None:
    """Return the path of a job's output as text.

    Raises:
        ConfigError: It is no path.
    """
    if output is None:
        return None
    if not isinstance(output, str | os.PathLike):
        raise ConfigError(f"output: expected a path, got {output!r}")
    return os.fsdecode(output)


def chosen_sink(spec: PipelineSpec, output: str | None) -> Sink:
    """Return the YAML's sink, or the one that `--output` asks for.

    Raises:
        ConfigError: There is none, or it writes no such file.
    """
    if output is None:
        if spec.sink is None:
            raise ConfigError(f"{spec.name}: there is no sink; set `sink:` or give --output")
        return cast("Sink", spec.sink)
    if spec.sink is not None and output:
        path = Path(cast("Sink", spec.sink).path)
        if output.endswith("/") or Path(output).is_dir():
            output = os.path.join(output, path.name)  # noqa: PTH118 - any bytes, as text
        if Path(output).suffix == path.suffix:
            return cast("Sink", _with_path(spec.sink, "--output", [output]))
    try:
        named = sink_of(os.fsencode(output).decode("utf-8", "replace"))  # which one it asks for
    except PydanticCustomError as error:
        folder = "" if Path(output).suffix else f"; a folder is written '{output}/'"
        raise ConfigError(f"--output: {error.message()}{folder}") from None
    # The YAML's sink keeps its other options. A path may be any bytes.
    sink = spec.sink if type(named) is type(spec.sink) else named
    return cast("Sink", _with_path(sink, "--output", [output]))


def _with_path(plugin: Any, option: str, paths: list[str]) -> Any:
    """Return a source or a sink with other paths in the field that a bare value goes to."""
    field = shorthand_of(type(plugin))
    if field is None:
        raise ConfigError(f"{option}: a {type(plugin).__name__} takes no path")
    several = isinstance(getattr(plugin, field), tuple)
    if len(paths) > 1 and not several:
        raise ConfigError(f"{option}: a {type(plugin).__name__} takes one path, got {len(paths)}")
    try:
        return replace(plugin, **{field: tuple(paths) if several else paths[0]})
    except ValueError as error:  # an empty path
        raise ConfigError(f"{option}: {error}") from error
