"""Which feed a source's inputs go through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gepipe.errors import ConfigError, InternalError
from gepipe.io.original import takes_origin
from gepipe.io.videos import VideoFiles
from gepipe.pipeline.chainrun import GROUPS
from gepipe.runtime.feed import Feed, ListedFeed, ThreadedFeed
from gepipe.spec.parts import name_of
from gepipe.video.feed import VideoFeed

if TYPE_CHECKING:
    from typing_extensions import Self

    from gepipe.io.manifest import Manifest
    from gepipe.io.sink import Sink
    from gepipe.io.source import Source
    from gepipe.plugins import Kind
    from gepipe.spec.model import PipelineSpec


@dataclass(frozen=True, slots=True)
class InFlight:
    """How many items a run holds at once.

    Attributes:
        batch: Rows of a batch.
        keep: Whether an item's picture is needed until its outcome is out, and not only by pre.
        window: How many items may be between the two.
        least: How many pictures there must be room for, or the run could not go on.
    """

    batch: int
    keep: bool
    window: int
    least: int = 1

    @classmethod
    def of(
        cls, spec: PipelineSpec, sink: Sink | None, *, batch: int, group: int, slots: int
    ) -> Self:
        """Return the numbers of a run.

        Args:
            spec: The pipeline.
            sink: Where results go; None for a program in Python.
            batch: Rows of a batch, of the first model.
            group: Items that share batches of parts, of several models; else a batch.
            slots: How many batches there is room for on either side of the model.
        """
        window = (2 * slots + 2) * batch
        if spec.mids:
            # Parts of a group wait for all of it; one batch more, or decoders would wait, too.
            return cls(batch, True, window + GROUPS * group, group + batch)
        keep = sink is not None and (
            bool(getattr(sink, "keeps_frames", False)) or takes_origin(sink.encoder)
        )
        return cls(batch, keep, window)


def has_frames(source: Source) -> bool:
    """Whether the items of a source are frames of videos, so that nobody knows how many."""
    return isinstance(source, VideoFiles)


def drawn_feed(source: Source, room: InFlight) -> Feed:
    """Return the feed of a run whose inputs are drawn one by one."""
    if isinstance(source, VideoFiles):
        return VideoFeed(
            source,
            source.entries(),
            batch=room.batch,
            keep=room.keep,
            window=room.window,
            least=room.least,
        )
    return ThreadedFeed(source.entries(), ahead=2 * room.batch)


def require_frames(source: Source, sink: Sink) -> None:
    """Check that a sink which keeps frames gets frames.

    Raises:
        ConfigError: The source gives pictures, or something else.
    """
    if getattr(sink, "keeps_frames", False) and not has_frames(source):
        raise ConfigError(
            f"sink: {_called('sinks', sink)} makes films of videos, and the source "
            f"{_called('sources', source)} gives none; give videos, or use another sink, as in "
            "--set 'sink={annotated: out/drawn.jsonl}'"
        )


def _called(kind: Kind, part: Any) -> str:
    try:
        return name_of(kind, part)
    except InternalError:  # a program's own, which no YAML can name
        return type(part).__name__


def listed_feed(
    source: Source, manifest: Manifest, room: InFlight, *, first: int, limit: int | None
) -> Feed:
    """Return the feed of a job.

    Args:
        source: The inputs.
        manifest: The list of them.
        room: How many items the run holds at once.
        first: Index of the first item to give.
        limit: Give none from this index on, where a source's items are frames.
    """
    if isinstance(source, VideoFiles):
        return VideoFeed(
            source,
            manifest.entries(),
            batch=room.batch,
            count=len(manifest),
            first=first,
            limit=limit,
            keep=room.keep,
            window=room.window,
            least=room.least,
        )
    return ListedFeed(manifest.entries(first), len(manifest) - first)
