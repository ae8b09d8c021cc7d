"""The kinds of stages as frozen models.

Every field carries one sentence of description with its unit, its default and an example where they
help; the JSON schema and the reference page are made of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from gepipe.spec.units import Timeout, shown
from gepipe.spec.values import (
    Backend,
    BackendChoice,
    CountOrAuto,
    Devices,
    Gears,
    MidOps,
    ModelPath,
    PostOps,
    PreOps,
)

#: Keys of the pipeline; a stage of such a name could not be told from them by `--set`.
RESERVED: Final = frozenset(
    (
        "pipeline",
        "name",
        "source",
        "stages",
        "sink",
        "depth",
        "max_wait",
        "profile",
        "on_error",
        "max_failures",
    )
)
NAME_PATTERN: Final = "^[A-Za-z_][A-Za-z0-9_-]*$"


def _stage_name(name: str) -> str:
    if name.endswith("\n") or not re.match(NAME_PATTERN, name):
        raise ValueError(f"expected a name of letters, digits, _ and -, got {shown(name)}")
    if name in RESERVED:
        raise ValueError(f"a stage cannot be called {name!r}: that is a key of the pipeline")
    return name


class Section(BaseModel):
    """A mapping of the file. Unknown keys are errors; a key without a value counts as left out."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _leave_out_empty(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: item for key, item in value.items() if item is not None}
        return value


StageName = Annotated[str, AfterValidator(_stage_name)]


class PreStage(Section):
    """CPU workers that turn each item into one row of the model's input."""

    name: StageName = Field(
        description="Name of the stage; `preprocess` and `pre` imply the role `pre`."
    )
    role: Literal["pre"] = Field(
        "pre", description="What the stage does; only needed where the name does not imply it."
    )
    threads: CountOrAuto = Field(
        "auto", description="CPU workers, for example `4`; `auto` fits them to the machine."
    )
    batch_size: CountOrAuto = Field(
        "auto",
        description="Rows of one batch, for example `8`; `auto` takes what the engine runs best.",
    )
    ops: PreOps = Field(
        (), description="Operators in the order in which they are applied to an item."
    )
    timeout: Timeout = Field(
        60.0,
        description=(
            "Limit for one item, for example `10s`; an item that takes longer is set aside."
        ),
    )


class InferStage(Section):
    """The model, run on whole batches by one process a device."""

    name: StageName = Field(
        description="Name of the stage; `inference` and `infer` imply the role `infer`."
    )
    role: Literal["infer"] = Field(
        "infer", description="What the stage does; only needed where the name does not imply it."
    )
    model: ModelPath | None = Field(None, description="Path of the model, `.onnx` or `.om`.")
    backend: BackendChoice = Field(
        Backend(),
        description=(
            "Engine that runs the model, such as `onnxruntime`, or `{name: {option: "
            "value}}`; `auto` chooses by model and machine and says so."
        ),
    )
    devices: Devices = Field(
        "auto",
        description=(
            "Numbers of the devices to use, for example `[0, 1]`; `auto` takes all there are."
        ),
    )
    instances: CountOrAuto = Field(
        "auto",
        description=(
            "Processes for each device, for example `1`; `auto` is one, and on the CPU one a "
            "processor for a model of at most 128 MiB."
        ),
    )
    timeout: Timeout | None = Field(
        None,
        description=(
            "Limit for one execution on a device, for example `50ms`; then it is tried once "
            "more elsewhere, then its items fail. None by default."
        ),
    )
    gears: Gears = Field(
        (),
        description=(
            "Batch sizes the model is prepared for, for example `[1, 4, 8]`; empty takes "
            "the model's own."
        ),
    )
    precision: Literal["auto", "fp32", "fp16"] = Field(
        "auto", description="Number format of the computation; `auto` leaves the model as it is."
    )
    nan: Literal["fail", "keep", "warn"] = Field(
        "fail",
        description=(
            "What to do with an item whose output holds NaN: set it aside (`fail`), pass it "
            "on (`keep`), or pass it on and say so (`warn`)."
        ),
    )


class MidStage(Section):
    """CPU workers between two models: what the one found becomes the parts that the other sees."""

    name: StageName = Field(description="Name of the stage; `mid` implies the role `mid`.")
    role: Literal["mid"] = Field(
        "mid", description="What the stage does; only needed where the name does not imply it."
    )
    threads: CountOrAuto = Field(
        "auto",
        description=(
            "CPU workers that make the next model's input of the parts, for example `4`; `auto` "
            "fits them to the machine."
        ),
    )
    stream_count: CountOrAuto = Field(
        "auto",
        description=(
            "CPU workers that read the model before and split its items, for example `2`; `auto` "
            "fits them to the machine."
        ),
    )
    batch_size: CountOrAuto = Field(
        "auto",
        description=(
            "Parts of one batch of the next model, for example `8`; `auto` takes what the engine "
            "runs best."
        ),
    )
    ops: MidOps = Field(
        description=(
            "Operators as of a post stage, then one that splits an item into parts, such as "
            "`crop`, then operators as of a pre stage, applied to each part."
        ),
    )
    timeout: Timeout = Field(
        60.0,
        description=(
            "Limit for one item, and for one part, for example `10s`; what takes longer is set "
            "aside."
        ),
    )


class PostStage(Section):
    """CPU workers that turn each row of the model's output into a result."""

    name: StageName = Field(
        description="Name of the stage; `postprocess` and `post` imply the role `post`."
    )
    role: Literal["post"] = Field(
        "post",
        description="What the stage does; only needed where the name does not imply it.",
    )
    stream_count: CountOrAuto = Field(
        "auto", description="Post workers, for example `2`; `auto` fits them to the machine."
    )
    ops: PostOps = Field(
        (), description="Operators in the order in which they are applied to an item's outputs."
    )
    timeout: Timeout = Field(
        60.0,
        description=(
            "Limit for one item, for example `10s`; an item that takes longer is set aside."
        ),
    )
