"""Whether a run would write over something that it reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from gepipe.errors import ConfigError
from gepipe.io.failures import beside
from gepipe.io.files import FileReader
from gepipe.io.frames import FrameReader
from gepipe.io.job import Job as JobFile
from gepipe.io.outputs import files_of
from gepipe.io.textfiles import TextFiles

if TYPE_CHECKING:
    from gepipe.io.drawnfolder import DrawnFolder
    from gepipe.io.sink import Sink
    from gepipe.io.source import Entry, Source
    from gepipe.spec.model import PipelineSpec


def require_apart(
    spec: PipelineSpec,
    source: Source,
    sink: Sink,
    entries: Callable[[], Iterable[Entry]],
    *,
    resume: bool = False,
) -> None:
    """Check that a run writes over nothing that it reads.

    Args:
        spec: The pipeline.
        source: Its inputs.
        sink: Where the results go.
        entries: Enumerates the inputs. They are looked at one by one where a file is in the way
            that no run has written, else only those of its name.
        resume: Whether the output is continued, which writes over nothing.

    Raises:
        ConfigError: The output, or a file beside it, is the model, an input or the like.
    """
    written = {key: path for path in files_of(sink) if (key := _identity(path)) is not None}
    for what, path in _files_read(spec, source):
        if (place := written.get(_identity(path) or ())) is not None:
            raise ConfigError(f"sink: {str(place)!r} is {what}; write to another file")
    _require_apart_from_pictures(source, sink, entries)
    own = _written_before(sink)
    if not written or (own and resume) or not _has_paths(source):
        return
    names = {os.fsencode(path.name) for path in written.values()}
    for entry in entries():
        if own and os.path.basename(entry.payload) not in names:  # noqa: PTH119 - bytes
            continue
        if (place := written.get(_identity(entry.payload) or ())) is not None:
            raise ConfigError(
                f"sink: {str(place)!r} is an input, {entry.source!r}; write to another file"
            )


def _require_apart_from_pictures(
    source: Source, sink: Sink, entries: Callable[[], Iterable[Entry]]
) -> None:
    """Check that a sink's folder of what is drawn, which goes at a new run, holds no input."""
    drawn: DrawnFolder | None = getattr(sink, "drawn", None)
    folder = _identity(drawn.path) if drawn is not None else None
    if folder is None or not _has_paths(source):
        return
    elsewhere: set[bytes] = set()
    for entry in entries():
        parent = os.path.dirname(entry.payload) or b"."  # noqa: PTH120 - bytes
        if parent in elsewhere:
            continue
        if _identity(parent) == folder:
            raise ConfigError(
                f"sink: the folder of what is drawn holds an input, {entry.source!r}; "
                "write to another folder"
            )
        elsewhere.add(parent)


def _has_paths(source: Source) -> bool:
    """Whether the payload of an entry is a path."""
    return isinstance(source.reader, FileReader | FrameReader)


def _identity(path: str | bytes | os.PathLike[str]) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - bytes too
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _files_read(spec: PipelineSpec, source: Source) -> Iterator[tuple[str, str | Path]]:
    """Yield what a pipeline reads besides the inputs, and what it is."""
    for stage in spec.stages:
        if stage.role == "infer" and stage.model is not None:
            yield "the model", stage.model
    if spec.origin is not None:
        yield "the pipeline file", spec.origin
    path = getattr(source, "path", None)
    if isinstance(source, TextFiles):
        yield from (("what the inputs are read from", os.fsdecode(file)) for file in source.files())
    elif isinstance(path, str | Path):
        yield "what the inputs are read from", path
    for op in (op for stage in spec.stages if stage.role != "infer" for op in stage.ops):
        for field in fields(op):
            value = getattr(op, field.name)
            for each in value if isinstance(value, tuple) else (value,):
                name = each.partition(".py:")[0] + ".py" if isinstance(each, str) else each
                if isinstance(each, Path) or (isinstance(each, str) and ".py:" in each):
                    yield f"a file that the operator {op.title!r} reads", name


def _written_before(sink: Sink) -> bool:
    """Whether a run has written into `sink` before, by the word of its job file."""
    output = Path(sink.path)
    try:
        earlier = JobFile.load(beside(output, ".job.json"))
    except ConfigError:
        return False
    return earlier is not None and earlier.output == output.name
