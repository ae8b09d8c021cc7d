"""What of a pipeline is served: its tensors, its batch, its instances, and whether it can be."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gepipe.errors import ExportError, GepipeError
from gepipe.ops.decode import DecodeImage
from gepipe.ops.text import Tokenize
from gepipe.ops.user import Python
from gepipe.pipeline import followers, neighbours
from gepipe.pipeline.check import resolve
from gepipe.pipeline.crews import pickled, worker_environment
from gepipe.pipeline.findings import Preparation
from gepipe.pipeline.single import require_one_model
from gepipe.runtime.probe import set_up
from gepipe.serving.itemmeta import META
from gepipe.serving.payloads import RESULT
from gepipe.spec.profile import Profile, complete
from gepipe.tensors import DTYPES
from gepipe.triton.config import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gepipe.pipeline.startplan import StartPlan
    from gepipe.runtime.body import ModelInfo
    from gepipe.runtime.events import Role
    from gepipe.spec.model import PipelineSpec
    from gepipe.spec.stages import PostStage, PreStage
    from gepipe.tensors import TensorSpec

#: What becomes a folder, a part of an address, and an argument of a shell that nobody quotes.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What is exported.

    Attributes:
        name: The pipeline's name, which the served model bears.
        spec: The pipeline as it is run.
        start: Engine, devices and workers.
        info: What the model says of itself.
        batch: Rows of the largest batch.
        inputs: The model's inputs, of one row.
        outputs: The model's outputs, of one row.
        given: What a client sends.
        made: What it gets.
        profile: What the pipeline is tuned for, with every default.
    """

    name: str
    spec: PipelineSpec
    start: StartPlan
    info: ModelInfo
    batch: int
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    given: Tensor
    made: Tensor
    profile: Profile

    def model_name(self, role: str) -> str:
        """Return what the step of a role is called in the server."""
        (stage,) = (stage for stage in self.spec.stages if stage.role == role)
        return f"{self.name}_{stage.name}"


def plan_export(spec: PipelineSpec) -> ExportPlan:
    """Open the model, set the operators up, and settle how they are served.

    Raises:
        ExportError: The pipeline cannot be served; lists every reason.
        GepipeError: It could not be run either.
    """
    if not _NAME.fullmatch(spec.name):
        raise ExportError(
            f"name: {spec.name!r} cannot be the name of a served model; expected letters, digits, "
            "_, - and ., not first - or ."
        )
    require_one_model(
        spec,
        "what splits an item into parts is no step of a server",
        "export each model with the stages around it as a pipeline of its own, such as "
        f"{spec.pre.name}, {spec.infer.name} and a post stage with the operators of "
        f"{spec.mids[0].name if spec.mids else ''} before its split; `gepipe run` runs all of them",
        ExportError,
    )
    for op in spec.post.ops:
        if op.ordered:
            raise ExportError(
                f"{spec.post.name}: {op.title} keeps a state from item to item, and requests have "
                "no order; leave it out, and let the client do it"
            )
    settled, start, info, slots = resolve(spec)
    inputs = tuple(tensor.row for tensor in slots.inputs.tensors)
    problems = [
        *neighbours.input_mismatches(settled, info),
        *followers.output_mismatches(settled, info),
        *_reserved(info),
        *_broken(settled),
    ]
    if problems:
        raise ExportError("\n".join(problems))
    return ExportPlan(
        spec.name,
        settled,
        start,
        info,
        slots.inputs.batch,
        inputs,
        tuple(tensor.row for tensor in slots.outputs.tensors),
        _given(settled, inputs),
        Tensor(RESULT, "STRING", (1,)),
        complete(spec.profile),
    )


def tensor_of(row: TensorSpec, *, taken: bool = False) -> Tensor:
    """Return a tensor of the model as the configuration names it.

    Args:
        row: The tensor, of one row.
        taken: Whether the model takes it, and not makes it.
    """
    reshape = () if taken and not row.shape else None
    return Tensor(row.name, DTYPES[row.dtype].triton, row.shape or (1,), reshape)


def _given(spec: PipelineSpec, inputs: Sequence[TensorSpec]) -> Tensor:
    """Return what a client sends."""
    ops = spec.pre.ops
    if ops and isinstance(ops[0], DecodeImage):
        return Tensor("IMAGE", "STRING", (1,))
    if ops and isinstance(ops[0], Python | Tokenize):
        return Tensor("INPUT", "STRING", (1,))
    if ops:
        raise ExportError(
            f"{spec.pre.name}: begins with {ops[0].title}, which takes an array of a size that "
            "the server is not told; put `- decode_image` or a `- python:` operator first"
        )
    if len(inputs) > 1:
        names = ", ".join(row.name for row in inputs)
        raise ExportError(
            f"{spec.pre.name}: has no operators, but the model takes {names}; begin with a "
            "`- python:` operator that returns a dict of them"
        )
    tensor = tensor_of(inputs[0])
    return Tensor("INPUT", tensor.data_type, tensor.dims)


def _reserved(info: ModelInfo) -> Iterator[str]:
    for row in (*info.inputs, *info.outputs):
        if row.name == META:
            yield f"the model has a tensor called {META}, which carries an item's meta; rename it"


def _broken(spec: PipelineSpec) -> Iterator[str]:
    """Yield why operators cannot be set up, as they will be in the server."""
    stages: tuple[tuple[Role, PreStage | PostStage], ...] = (("pre", spec.pre), ("post", spec.post))
    bodies = [(role, pickled(Preparation(stage.ops), stage.name)) for role, stage in stages]
    outcomes = set_up(bodies, environ=worker_environment())
    for (_, stage), outcome in zip(stages, outcomes, strict=True):
        if isinstance(outcome, GepipeError):
            yield from (f"{stage.name}: {line}" for line in str(outcome).splitlines())
