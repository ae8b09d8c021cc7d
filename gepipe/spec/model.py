"""`pipeline.yaml` as a frozen model: what a pipeline is, before anything is opened or started."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr

from gepipe.ops.parts import Splitter
from gepipe.spec.chain import Stage, Stages
from gepipe.spec.legs import gather_at, leg_stages, splitter_of
from gepipe.spec.profile import ProfileChoice
from gepipe.spec.stages import InferStage, MidStage, PostStage, PreStage, Section
from gepipe.spec.units import Duration, Failures
from gepipe.spec.values import Count, Sink, Source


class PipelineSpec(Section):
    """A pipeline: where items come from, the stages they pass, and where results go."""

    name: str = Field(
        "pipeline",
        min_length=1,
        description="Name of the pipeline, shown in messages; `pipeline` by default.",
    )
    source: Source | None = Field(
        None,
        description=(
            "Where items come from: a path, a folder, a glob pattern, a list of them, or "
            "`{source: parameters}`."
        ),
    )
    stages: Stages = Field(
        description=(
            "The stages in the order of the data: pre, infer, post; for each further model mid, "
            "infer before post."
        )
    )
    sink: Sink | None = Field(
        None,
        description=(
            "Where results go: a path whose ending says the format, or `{sink: parameters}`."
        ),
    )
    depth: Count = Field(
        2,
        description=(
            "Slots a link between two stages has for each process that runs the model, `2` by "
            "default (double buffering)."
        ),
    )
    max_wait: Duration | None = Field(
        None,
        description=(
            "How long a part-filled batch waits for a source that yields items slowly, such as "
            "a generator, for example `5ms`; `100ms` by default. Listed files never wait."
        ),
    )
    profile: ProfileChoice | None = Field(
        None,
        description=(
            "What the pipeline is tuned for, where its stages leave that open: `latency`, "
            "`throughput`, or a mapping; see Profiles."
        ),
    )
    on_error: Literal["skip", "fail"] = Field(
        "skip",
        description=(
            "What a failed item does: it is set aside and the run goes on (`skip`, the "
            "default), or the run stops (`fail`)."
        ),
    )
    max_failures: Failures | None = Field(
        None,
        description=(
            "How many items may fail before the run stops, for example `100` or `1%`; no "
            "limit by default."
        ),
    )

    _origin: Path | None = PrivateAttr(default=None)

    @property
    def origin(self) -> Path | None:
        """The file that the pipeline was read from."""
        return self._origin

    def stage(self, name: str) -> Stage:
        """Return the stage of that name.

        Raises:
            KeyError: There is none.
        """
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)

    @property
    def pre(self) -> PreStage:
        """The first stage with the role pre."""
        return next(stage for stage in self.stages if isinstance(stage, PreStage))

    @property
    def infer(self) -> InferStage:
        """The first stage with the role infer."""
        return next(stage for stage in self.stages if isinstance(stage, InferStage))

    @property
    def post(self) -> PostStage:
        """The stage with the role post."""
        return next(stage for stage in self.stages if isinstance(stage, PostStage))

    @property
    def mids(self) -> tuple[MidStage, ...]:
        """The stages between two models; none where there is only one model."""
        return tuple(stage for stage in self.stages if isinstance(stage, MidStage))

    @property
    def splitters(self) -> tuple[Splitter, ...]:
        """The operators by which the mid stages split an item, in order."""
        return tuple(splitter_of(mid) for mid in self.mids)

    @property
    def joining(self) -> tuple[Any, ...]:
        """The operators that run once an item, when its parts are gathered."""
        return self.post.ops[gather_at(self.post.ops) :] if self.mids else ()

    @property
    def legs(self) -> tuple[PipelineSpec, ...]:
        """The pipeline as ordinary ones of one model each; itself where it is one."""
        if not self.mids:
            return (self,)
        return tuple(self.model_copy(update={"stages": leg}) for leg in leg_stages(self.stages))
