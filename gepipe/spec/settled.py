"""A pipeline with what its profile says for the keys that it leaves open."""

from __future__ import annotations

from collections.abc import Iterator

from gepipe.spec.model import PipelineSpec
from gepipe.spec.profile import complete


def settle(spec: PipelineSpec) -> PipelineSpec:
    """Return a pipeline with what its profile says for the keys that it leaves open.

    The batch size is not among them: it also depends on the model, see `wished_batch`.
    """
    if spec.profile is None:
        return spec
    profile = complete(spec.profile)
    infer = {
        key: getattr(profile, key)
        for key in ("instances", "precision")
        if getattr(spec.infer, key) == "auto"
    }
    stages = tuple(
        stage.model_copy(update=infer) if stage.role == "infer" else stage for stage in spec.stages
    )
    wait = profile.max_wait if spec.max_wait is None else spec.max_wait
    return spec.model_copy(update={"stages": stages, "max_wait": wait})


def wished_batch(spec: PipelineSpec) -> int | None:
    """Return the rows of a batch that the profile asks for, if it has a say in that."""
    if spec.pre.batch_size != "auto" or spec.profile is None:
        return None
    return complete(spec.profile).batch_size


def said_by_profile(spec: PipelineSpec) -> Iterator[tuple[str, int | str]]:
    """Yield key and value of everything that the profile decides of a pipeline as written."""
    if spec.profile is None:
        return
    profile = complete(spec.profile)
    if (batch := wished_batch(spec)) is not None:
        yield "batch_size", batch
    if spec.max_wait is None and profile.max_wait is not None:
        yield "max_wait", f"{profile.max_wait * 1000:g}ms"
    for key in ("instances", "precision"):
        if getattr(spec.infer, key) == "auto" != getattr(profile, key):
            yield key, getattr(profile, key)
    assert profile.queue is not None
    assert profile.priority_levels is not None
    yield "queue", profile.queue
    yield "priority_levels", profile.priority_levels
