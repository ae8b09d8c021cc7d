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
from gepipe.pipeline.assembly import plan
from gepipe.pipeline.check import resolve_legs
from gepipe.pipeline.crews import pickled, worker_environment
from gepipe.pipeline.findings import Preparation
from gepipe.runtime.probe import set_up
from gepipe.serving.itemmeta import META
from gepipe.serving.payloads import RESULT
from gepipe.spec.profile import Profile, complete
from gepipe.tensors import DTYPES
from gepipe.triton.config import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from gepipe.ops.op import Op
    from gepipe.pipeline.check import Resolved
    from gepipe.pipeline.startplan import StartPlan
    from gepipe.runtime.body import ModelInfo
    from gepipe.runtime.events import Role
    from gepipe.spec.chain import Stage
    from gepipe.spec.model import PipelineSpec
    from gepipe.tensors import TensorSpec

#: What becomes a folder, a part of an address, and an argument of a shell that nobody quotes.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What is exported. Of several models, what is of one is of the first.

    Attributes:
        name: The pipeline's name, which the served model bears.
        spec: The pipeline as it is run.
        start: Engine, devices and workers.
        info: What the model says of itself.
        batch: Rows of the largest batch.
        inputs: The model's inputs, of one row.
        outputs: The model's outputs, of one row.
        models: The file of each model, by the name of its stage.
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
    models: Mapping[str, Path | None]
    given: Tensor
    made: Tensor
    profile: Profile

    def model_name(self, role: str) -> str:
        """Return what the step of a role is called in the server."""
        (stage,) = (stage for stage in self.spec.stages if stage.role == role)
        return f"{self.name}_{stage.name}"


def plan_export(spec: PipelineSpec) -> ExportPlan:
    """Open the models, set the operators up, and settle how they are served.

    Raises:
        ExportError: The pipeline cannot be served; lists every reason.
        GepipeError: It could not be run either.
    """
    if not _NAME.fullmatch(spec.name):
        raise ExportError(
            f"name: {spec.name!r} cannot be the name of a served model; expected letters, digits, "
            "_, - and ., not first - or ."
        )
    for stage in spec.stages:
        for op in () if stage.role == "infer" else stage.ops:
            if op.ordered:
                raise ExportError(
                    f"{stage.name}: {op.title} keeps a state from item to item, and requests have "
                    "no order; leave it out, and let the client do it"
                )
    legs = resolve_legs(plan(spec))
    first = legs[0]
    inputs = tuple(tensor.row for tensor in first.slots.inputs.tensors)
    problems = [
        problem
        for leg in legs
        for problem in (
            *neighbours.input_mismatches(leg.spec, leg.info),
            *followers.output_mismatches(leg.spec, leg.info),
            *(() if spec.mids else _reserved(leg.info)),
        )
    ]
    problems += _broken(spec, legs)
    if problems:
        raise ExportError("\n".join(problems))
    settled = _settled(spec, legs)
    return ExportPlan(
        spec.name,
        settled,
        first.start,
        first.info,
        first.slots.inputs.batch,
        inputs,
        tuple(tensor.row for tensor in first.slots.outputs.tensors),
        {leg.spec.infer.name: leg.start.model for leg in legs},
        _given(settled, inputs),
        Tensor(RESULT, "STRING", (1,)),
        complete(spec.profile),
    )


def _settled(spec: PipelineSpec, legs: Sequence[Resolved]) -> PipelineSpec:
    """Return the pipeline as it is run: with what its legs have become."""
    first = legs[0].spec
    stages: list[Stage] = [first.pre, first.infer]
    for mid, before, behind in zip(spec.mids, legs, legs[1:], strict=False):
        ops = (*before.spec.post.ops, *behind.spec.pre.ops)
        batch = behind.slots.inputs.batch
        stages.append(mid.model_copy(update={"ops": ops, "batch_size": batch}))
        stages.append(behind.spec.infer)
    return first.model_copy(update={"stages": (*stages, spec.post)})


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
        if spec.mids:
            raise ExportError(
                f"{spec.pre.name}: begins with {ops[0].title}, and parts are cut out of what "
                "clients send: what it makes of that does not reach those who cut; begin with "
                "`- decode_image` and put it behind"
            )
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
    row = inputs[0]
    if spec.mids and (row.dtype != "uint8" or len(row.shape) != 3):
        raise ExportError(
            f"{spec.pre.name}: has no operators, and parts are cut out of what clients send: "
            f"expected 8-bit pictures of height, width and channels, but the model takes {row}; "
            "begin with `- decode_image`"
        )
    tensor = tensor_of(row)
    return Tensor("INPUT", tensor.data_type, tensor.dims)


def _reserved(info: ModelInfo) -> Iterator[str]:
    for row in (*info.inputs, *info.outputs):
        if row.name == META:
            yield f"the model has a tensor called {META}, which carries an item's meta; rename it"


def _broken(spec: PipelineSpec, legs: Sequence[Resolved]) -> Iterator[str]:
    """Yield why operators cannot be set up, as they will be in the server."""
    stages: list[tuple[Role, str, Sequence[Op]]] = []
    for leg, _, _, _ in legs:
        stages += [("pre", leg.pre.name, leg.pre.ops), ("post", leg.post.name, leg.post.ops)]
    if spec.mids:
        stages.append(("pre", spec.post.name, spec.joining))
    bodies = [(role, pickled(Preparation(ops), name)) for role, name, ops in stages]
    outcomes = set_up(bodies, environ=worker_environment())
    for (_, name, _), outcome in zip(stages, outcomes, strict=True):
        if isinstance(outcome, GepipeError):
            yield from (f"{name}: {line}" for line in str(outcome).splitlines())
