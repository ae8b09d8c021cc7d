"""A pipeline with what its profile says for the keys that it leaves open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gepipe.spec.model import PipelineSpec
from gepipe.spec.profile import complete

#: Keys of an infer stage that a profile fills in.
_KEYS: Final = ("instances", "precision")


def settle(spec: PipelineSpec) -> PipelineSpec:
    """Return a pipeline with what its profile says for the keys that it leaves open.

    The batch size is not among them: it also depends on the model, see `wished_batch`.
    """
    if spec.profile is None:
        return spec
    profile = complete(spec.profile)
    stages = tuple(
        stage.model_copy(
            update={key: getattr(profile, key) for key in _KEYS if getattr(stage, key) == "auto"}
        )
        if stage.role == "infer"
        else stage
        for stage in spec.stages
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
    wished = [batch for leg in spec.legs if (batch := wished_batch(leg)) is not None]
    if wished:
        yield "batch_size", wished[0]
    if spec.max_wait is None and profile.max_wait is not None:
        yield "max_wait", f"{profile.max_wait * 1000:g}ms"
    infers = [stage for stage in spec.stages if stage.role == "infer"]
    for key in _KEYS:
        left_open = any(getattr(infer, key) == "auto" for infer in infers)
        if left_open and getattr(profile, key) != "auto":
            yield key, getattr(profile, key)
    assert profile.queue is not None
    assert profile.priority_levels is not None
    yield "queue", profile.queue
    yield "priority_levels", profile.priority_levels
