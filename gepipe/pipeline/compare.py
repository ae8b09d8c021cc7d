"""Runs the same inputs through a model in two ways, and compares outputs and results.

The ways are two engines, two models, or two sizes of batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gepipe.errors import ConfigError, ItemError
from gepipe.io.source import Entry
from gepipe.models.aipp import split_for_aipp
from gepipe.models.kind import kind_of
from gepipe.ops.op import Meta, Op
from gepipe.ops.plan import plan_post, plan_pre
from gepipe.pipeline.check import open_model
from gepipe.pipeline.chosen import chosen_source
from gepipe.pipeline.comparison import CompareRequest, Comparison, Disagreement
from gepipe.pipeline.pipeline import Pipeline, Result
from gepipe.pipeline.plan import plan_start
from gepipe.pipeline.single import require_one_model
from gepipe.spec.load import load
from gepipe.spec.values import Backend

if TYPE_CHECKING:
    from gepipe.io.source import Source
    from gepipe.spec.model import PipelineSpec

#: Disagreements that are kept to be shown.
_SHOWN = 5


@dataclass(frozen=True)
class OutputsAndResult(Op):
    """Return a model's outputs as they are, and what the pipeline's own operators make of them.

    Without operators the outputs are the result, in order, as models may name them differently.

    Attributes:
        ops: The pipeline's post operators.
    """

    stage: ClassVar[Literal["pre", "post", "both"]] = "post"
    ops: tuple[Op, ...] = ()

    def setup(self) -> None:
        """Set the operators up."""
        for op in self.ops:
            op.setup()

    def __call__(self, value: Any, meta: Meta) -> Any:
        """Return both."""
        from gepipe.ops import scores

        outputs = scores.dump(value, None)
        result: Any = list(outputs.values())
        if self.ops:
            try:
                result = plan_post(self.ops)(value, meta)
            except ItemError as error:
                result = {"failed": error.kind}
        return {"outputs": outputs, "result": result}


@dataclass(frozen=True)
class FirstEntries:
    """The first entries of a source.

    Attributes:
        source: The source.
        limit: How many.
    """

    source: Source
    limit: int

    @property
    def finite(self) -> bool:
        """A limit is an end."""
        return True

    @property
    def reader(self) -> Any:
        """What reads the entries."""
        return self.source.reader

    def entries(self) -> Iterator[Entry]:
        """Yield the entries."""
        return islice(self.source.entries(), self.limit)


def compare(request: CompareRequest) -> Comparison:
    """Run the same inputs through both sides, in step, and compare.

    Raises:
        ConfigError: The request does not make two sides, or no item came through both.
        GepipeError: One of the sides cannot run.
    """
    spec = load(request.path, request.overrides)
    require_one_model(
        spec,
        "one is compared at a time",
        "write a pipeline of one model and the stages around it, or compare what two runs wrote",
    )
    source = FirstEntries(chosen_source(spec, request.inputs), request.limit)
    first, second = _specs(spec, request, source)
    notes: list[str] = []
    first, second = _for_pixels(first, spec, "a", notes), _for_pixels(second, spec, "b", notes)
    names = (_words(first), _words(second))
    found = Comparison(request, names)
    with ExitStack() as stack:
        sides = [stack.enter_context(Pipeline(each)) for each in (first, second)]
        _run(sides, found)
        for name, side in zip("ab", sides, strict=True):
            notes += [f"{name}: {note}" for note in side.notes]
    found.notes = tuple(notes)
    if not found.items:
        reasons = "; ".join(f"{why}" for _, why in found.failed.values())
        raise ConfigError(f"nothing was compared: {reasons or 'there are no inputs'}")
    return found


def _specs(
    spec: PipelineSpec, request: CompareRequest, source: FirstEntries
) -> tuple[PipelineSpec, PipelineSpec]:
    models = [
        given or spec.infer.model
        for given in (request.model_a, request.model_b)
    ]  # fmt: skip
    if None in models:
        raise ConfigError(f"{spec.infer.name}: there is no model; set `model:` of that stage")
    runs = ["onnxruntime" if kind_of(m)[0] == "onnx" else "ge" for m in models if m is not None]
    first = request.backend_a or runs[0]
    batches = [
        given or spec.pre.batch_size for given in (request.batch_a, request.batch_b)
    ]  # fmt: skip
    default = first if batches[0] != batches[1] else "ge"
    second = request.backend_b or (runs[1] if request.model_b is not None else default)
    if (models[0], first, batches[0]) == (models[1], second, batches[1]):
        other = (
            "another model with --model-b, another engine with --backend-b, or another batch size "
            "with --batch-b"
        )
        if first == "ge":
            other = (
                "the ONNX model that it was converted from with --model-a model.onnx, or another "
                "batch size with --batch-b"
            )
        raise ConfigError(f"both sides are {models[0]} on {first}; give {other}")
    made = []
    for model, name, batch in zip(models, (first, second), batches, strict=True):
        pre = spec.pre.model_copy(update={"batch_size": batch})
        options = dict(spec.infer.backend.options) if spec.infer.backend.name == name else {}
        infer = spec.infer.model_copy(
            update={
                "model": model, "backend": Backend(name, options), "nan": "keep", "timeout": None,
                **({} if name == "ge" else {"devices": "auto", "precision": "auto", "gears": ()}),
            }
        )  # fmt: skip
        post = spec.post.model_copy(update={"ops": (OutputsAndResult(tuple(spec.post.ops)),)})
        made.append(
            spec.model_copy(
                update={
                    "stages": tuple(
                        {"pre": pre, "infer": infer, "post": post}.get(stage.role, stage)
                        for stage in spec.stages
                    ),
                    "source": source, "sink": None, "on_error": "skip", "max_failures": None,
                }
            )
        )  # fmt: skip
    return made[0], made[1]


def _for_pixels(
    side: PipelineSpec, spec: PipelineSpec, name: str, notes: list[str]
) -> PipelineSpec:
    """Take out of pre what a model with AIPP does by itself."""
    model = side.infer.model
    assert model is not None
    if side.infer.backend.name != "ge" or kind_of(model)[0] == "onnx":
        return side
    made = plan_pre(spec.pre.ops).output_specs()
    if made is None or made.dtype == "uint8":
        return side
    info = open_model(side, plan_start(side))
    if [row.dtype for row in info.inputs] != ["uint8"]:
        return side
    split = split_for_aipp(spec.pre.ops, order=_order_of(model, spec))
    dropped = ", ".join(op.title for op in split.dropped)
    notes.append(f"{name}: it takes 8-bit pixels: {dropped} of pre left to it")
    pre = side.pre.model_copy(update={"ops": split.ops})
    stages = tuple(pre if stage is side.pre else stage for stage in side.stages)
    return side.model_copy(update={"stages": stages})


def _order_of(model: Path, spec: PipelineSpec) -> Literal["rgb", "bgr"] | None:
    """Return the order of channels that a model wants, where its file tells that it swaps them."""
    if kind_of(model)[0] != "emulator":
        return None
    from gepipe.models.inspection import swaps_channels

    color = getattr(spec.pre.ops[0], "color", None) if spec.pre.ops else None
    if not swaps_channels(model) or color not in ("rgb", "bgr"):
        return None
    return "bgr" if color == "rgb" else "rgb"


def _words(side: PipelineSpec) -> str:
    options = side.infer.backend.options
    told = f" {options}" if options else ""
    return f"{side.infer.model} on {side.infer.backend.name}{told}, batch {side.pre.batch_size}"


def _run(sides: Sequence[Pipeline], found: Comparison) -> None:
    from gepipe.pipeline.differences import Differences, agrees

    differences = Differences()
    for first, second in _paired(*(side.run() for side in sides)):
        a: Mapping[str, Any] = first.value
        b: Mapping[str, Any] = second.value
        found.items += 1
        differences.add(first.index, a["outputs"], b["outputs"])
        if agrees(a["result"], b["result"], found.request.tolerance):
            found.agreeing += 1
        elif len(found.disagreements) < _SHOWN:
            found.disagreements.append(
                Disagreement(first.index, first.source, a["result"], b["result"])
            )
    found.outputs = list(differences.outputs.values())
    for name, side in zip("ab", sides, strict=True):
        if side.failures:
            why = side.failures[0]
            found.failed[name] = (len(side.failures), f"{why.source}: {why.error}")


def _paired(a: Iterator[Result], b: Iterator[Result]) -> Iterator[tuple[Result, Result]]:
    """Yield the results of items that came through both sides, and run both to their ends."""
    first, second = next(a, None), next(b, None)
    while first is not None and second is not None:
        if first.index == second.index:
            yield first, second
        place = first.index - second.index
        if place <= 0:
            first = next(a, None)
        if place >= 0:
            second = next(b, None)
    for rest in (a, b):
        for _ in rest:
            pass
