"""Which feed a source's inputs go through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gepipe.io.videos import VideoFiles
from gepipe.runtime.feed import Feed, ListedFeed, ThreadedFeed
from gepipe.video.feed import VideoFeed

if TYPE_CHECKING:
    from gepipe.io.manifest import Manifest
    from gepipe.io.sink import Sink
    from gepipe.io.source import Source
    from gepipe.spec.model import PipelineSpec


def drawn_feed(source: Source, *, batch: int, keep: bool) -> Feed:
    """Return the feed of a run whose inputs are drawn one by one.

    Args:
        source: The inputs.
        batch: Rows of a batch.
        keep: Whether an item's picture is needed until its outcome is out.
    """
    if isinstance(source, VideoFiles):
        return VideoFeed(source, source.entries(), batch=batch, keep=keep)
    return ThreadedFeed(source.entries(), ahead=2 * batch)


def has_frames(source: Source) -> bool:
    """Whether the items of a source are frames of videos, so that nobody knows how many."""
    return isinstance(source, VideoFiles)


def keeps_pictures(spec: PipelineSpec, sink: Sink) -> bool:
    """Whether an item's picture is needed behind pre: by the sink, or by a stage that cuts it."""
    return bool(
        getattr(sink, "keeps_frames", False)
        or getattr(sink.encoder, "takes_origin", False)
        or spec.mids
    )


def listed_feed(  # noqa: PLR0913 - the facts of a job
    source: Source,
    manifest: Manifest,
    *,
    batch: int,
    first: int,
    limit: int | None,
    keep: bool,
) -> Feed:
    """Return the feed of a job.

    Args:
        source: The inputs.
        manifest: The list of them.
        batch: Rows of a batch.
        first: Index of the first item to give.
        limit: Give none from this index on.
        keep: Whether an item's picture is needed until its outcome is out.
    """
    if isinstance(source, VideoFiles):
        return VideoFeed(
            source,
            manifest.entries(),
            batch=batch,
            count=len(manifest),
            first=first,
            limit=limit,
            keep=keep,
        )
    return ListedFeed(manifest.entries(first), len(manifest) - first)
